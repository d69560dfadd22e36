// The views: each makes elements of what the cluster answered.

import {
  state,
  byId,
  list,
  known,
  make,
  number,
  rate,
  percent,
  ms,
  slo,
  clock,
  day,
  ago,
  spanWords,
  modelLink,
  reasonsOf,
  ordered,
} from "./base.js";
import { lane, laneAxis, lines, meter, spark, stacks } from "./charts.js";
import { BAD_SHARE, downWords, modelTrouble } from "./troubles.js";

const OUTCOMES = [
  ["in_time", "in time"],
  ["late", "late"],
  ["dropped", "dropped"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
  ["refused", "refused"],
];

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const tile = (title, value, className) =>
  make("div", { class: "tile" }, make("b", { class: className }, value), make("span", { class: "soft" }, title));
const matches = (...texts) =>
  texts.some((text) =>
    String(text ?? "")
      .toLowerCase()
      .includes(state.filter),
  );

// Columns of the models' table: title, what it is sorted by, its cell. Numbers are sorted from the largest down.
export const COLUMNS = [
  [
    "Model",
    (model) => model.name,
    (model) => [
      "name",
      make("a", { href: modelLink(model.name) }, model.name),
      make("span", { class: "sub" }, `${model.subcluster} · ${model.policy}`),
    ],
  ],
  [
    "State",
    (model) => model.state,
    (model) => [
      "state-cell" + (model.ready ? "" : " bad-cell"),
      make("span", { class: "state " + (model.ready ? "good" : "bad") }, model.ready ? "ready" : model.state),
    ],
  ],
  ["Requests/s", (model) => model.now.rate_rps ?? -1, (model) => ["number", rate(model.now.rate_rps)]],
  [
    "Bad",
    (model) => model.now.bad_rate ?? -1,
    (model) => [
      "number",
      make(
        "span",
        { class: model.now.bad_rate > BAD_SHARE ? "bad" : model.now.bad_rate > 0 ? "warn" : "soft" },
        percent(model.now.bad_rate),
      ),
    ],
  ],
  [
    "Refused/s",
    (model) => model.now.refused_rps ?? -1,
    (model) => [
      "number",
      make("span", { class: model.now.refused_rps > 0 ? "warn" : "soft" }, rate(model.now.refused_rps)),
    ],
  ],
  ["p50", (model) => model.now.p50_ms ?? -1, (model) => ["number", ms(model.now.p50_ms)]],
  ["p99 / SLO", (model) => (model.now.p99_ms ?? -1) / model.slo_ms, (model) => ["number", latency(model)]],
  ["Queue", (model) => model.queued ?? -1, (model) => ["number", number(model.queued)]],
  ["Batch", (model) => model.now.batch ?? -1, (model) => ["number minor", number(model.now.batch, 1)]],
  [
    "Last hour",
    (model) => list(model.trend).reduce((sum, [all]) => sum + all, 0),
    (model) => ["wide", spark(list(model.trend), `requests of the last hour, the bad ones in front`)],
  ],
];
function latency(model) {
  const p99 = model.now.p99_ms,
    share = known(p99) ? p99 / model.slo_ms : null;
  // The p99 is from buckets; requests that missed the SLO were counted one by one.
  const level = model.now.bad_rate > BAD_SHARE ? "bad" : share > 0.8 ? "warn" : "";
  return make(
    "span",
    {},
    make("span", { class: level }, ms(p99)),
    make("span", { class: "soft" }, " / " + slo(model.slo_ms)),
    meter(share, level),
  );
}
function sortedModels(models) {
  const { column, down } = state.sort;
  const chosen = COLUMNS.find(([title]) => title === column);
  const key = chosen ? chosen[1] : (model) => -modelTrouble(model);
  return models
    .slice()
    .sort((one, other) => (down ? -1 : 1) * ordered(key(one), key(other)) || ordered(one.name, other.name));
}
export function modelsView(cluster) {
  const models = list(cluster.models),
    sum = (key) => models.reduce((all, model) => all + (model.now[key] || 0), 0);
  const bad = sum("late_rps") + sum("dropped_rps") + sum("failed_rps"),
    judged = bad + sum("in_time_rps"),
    refused = sum("refused_rps");
  const counted = models.some((model) => known(model.now.rate_rps));
  const gpus = list(cluster.gpus),
    busy = gpus.filter((gpu) => known(gpu.busy));
  const ready = models.filter((model) => model.ready).length,
    working = gpus.filter((gpu) => gpu.state === "up").length;
  const unread = reasonsOf(cluster.refused_unread).reduce((all, [, count]) => all + count, 0);
  const tiles = make(
    "div",
    { class: "tiles" },
    tile("requests/s, last minute", counted ? rate(sum("rate_rps")) : "–"),
    tile("in time", judged > 0 ? percent(1 - bad / judged) : "–", bad > BAD_SHARE * judged ? "bad" : ""),
    tile("refused/s", counted ? rate(refused) : "–", refused > 0 ? "warn" : ""),
    tile("models ready", `${ready} / ${models.length}`, ready < models.length ? "bad" : ""),
    tile("GPUs that take work", `${working} / ${gpus.length}`, working < gpus.length ? "warn" : ""),
    tile("GPU time used", busy.length ? percent(busy.reduce((all, gpu) => all + gpu.busy, 0) / busy.length) : "–"),
  );
  const shown = sortedModels(models.filter((model) => matches(model.name, model.subcluster, model.state)));
  const heads = COLUMNS.map(([title], at) => {
    const on = state.sort.column === title;
    return make(
      "th",
      {
        scope: "col",
        class: at > 1 && at < 9 ? "number" : null,
        "aria-sort": on ? (state.sort.down ? "descending" : "ascending") : null,
      },
      make("button", { type: "button", "data-sort": title }, title),
    );
  });
  const rows = shown.map((model) =>
    make(
      "tr",
      {
        class: "row" + (state.marked === model.name ? " marked" : ""),
        "data-key": model.name,
        "data-open": modelLink(model.name),
      },
      ...COLUMNS.map(([title, , cell], at) => {
        const [className, ...content] = cell(model);
        return make("td", { class: className, "data-label": at > 1 ? title : null }, ...content);
      }),
    ),
  );
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  const nothing = models.length ? "No model has this in its name" : "No model is loaded: symphony model load";
  const strayWhy = reasonsOf(cluster.refused_unread).map(
    ([reason, count]) => `${reason.slice("refused ".length)} (${count})`,
  );
  const stray =
    `In the last minute ${number(unread)} calls were refused before it was known which model they were for: ` +
    strayWhy.join(", ");
  return [
    tiles,
    make("div", { class: "card scrolls" }, rows.length ? table : make("div", { class: "empty" }, nothing)),
    unread > 0 ? make("p", { class: "soft" }, stray) : null,
  ].filter(known);
}

// What a model's slots say for each ten seconds of the span; null where nobody counted.
function spread(detail, span) {
  const step = detail.slot_s,
    to = detail.now_s,
    from = to - span;
  const slots = new Map(list(detail.slots).map((slot) => [slot.at, slot])),
    at = [];
  for (let begin = Math.floor(from / step) * step; begin <= to; begin += step)
    if (begin + step > detail.began_s) at.push(begin);
  return { at, step, from, to, slots: at.map((begin) => slots.get(begin) || null) };
}
function legend(entries) {
  return make(
    "div",
    { class: "legend" },
    ...entries.map(([className, title, value, isLine]) =>
      make(
        "span",
        {},
        make("i", { class: className + (isLine ? " line" : "") }),
        make("span", { class: "soft" }, title + " "),
        value,
      ),
    ),
  );
}
const chart = (title, entries, drawn) =>
  make(
    "section",
    { class: "card chart", "data-key": title },
    make("div", { class: "head" }, make("h2", {}, title), legend(entries)),
    drawn,
  );

function chartWidth(columns) {
  const room = byId("view").clientWidth || 640,
    fits = window.innerWidth > 820 ? columns : 1;
  return Math.max(280, Math.floor((room - 12 * (fits - 1)) / fits) - 30);
}
export function modelView(detail) {
  const { at, step, from, to, slots } = spread(detail, state.span.model);
  const width = chartWidth(2),
    height = 190,
    cursor = state.cursor,
    values = (key) => slots.map((slot) => (slot ? slot[key] : null));
  const index = cursor === null ? at.length - 1 : at.findIndex((begin) => cursor >= begin && cursor < begin + step);
  // The newest slot has just begun: the one before says more.
  const read = cursor === null ? slots[index - 1] || slots[index] : slots[index];
  const of = (key) => (read ? read[key] : null);
  const p50 = values("p50_ms"),
    p99 = values("p99_ms"),
    slowest = Math.max(0, ...p99.filter(known)),
    limit = detail.slo_ms;
  const base = { width, height, at, step, from, to, cursor, began: detail.began_s };
  const sums = slots.map((slot) => (slot ? slot.rate_rps + slot.refused_rps : 0));
  const top = (all) => 1.08 * Math.max(0, ...all.filter(known)) || 1;
  const time = cursor === null ? "now" : clock(new Date(cursor * 1000));
  const charts = make(
    "div",
    { class: "charts" },
    chart(
      "Latency, " + time,
      [
        ["p50", "p50", ms(of("p50_ms")), true],
        ["p99", "p99", ms(of("p99_ms")), true],
        ["bad", "SLO", slo(limit), true],
      ],
      lines({
        ...base,
        unit: "ms",
        top: Math.max(1.15 * limit, Math.min(1.05 * slowest, 4 * limit)),
        limit,
        limitLabel: "SLO " + slo(limit),
        label: `latency over time: p50 ${ms(of("p50_ms"))}, p99 ${ms(of("p99_ms"))}, SLO ${slo(limit)}`,
        series: [
          { className: "p50", values: p50 },
          { className: "p99", values: p99 },
        ],
      }),
    ),
    chart(
      "Requests, " + time,
      OUTCOMES.filter(([key]) => key === "in_time" || values(key + "_rps").some((value) => value > 0)).map(
        ([key, title]) => [key.replace("_", "-"), title, rate(of(key + "_rps") ?? 0)],
      ),
      stacks({
        ...base,
        unit: "/s",
        top: top(sums),
        label: `requests per second by outcome; in time ${rate(of("in_time_rps"))}`,
        series: OUTCOMES.map(([key]) => ({ className: key.replace("_", "-"), values: values(key + "_rps") })),
      }),
    ),
    chart(
      "Batch size, " + time,
      [["batch", "items", number(of("batch"), 1), true]],
      lines({
        ...base,
        unit: "",
        top: top(values("batch")),
        label: `items of a batch in the mean: ${number(of("batch"), 1)}`,
        series: [{ className: "batch", values: values("batch") }],
      }),
    ),
    chart(
      "Waiting requests, " + time,
      [["waiting", "in the mean", number(of("waiting"), 1), true]],
      lines({
        ...base,
        unit: "",
        top: top(values("waiting")),
        label: `requests that wait in the mean: ${number(of("waiting"), 1)}`,
        series: [{ className: "waiting", values: values("waiting") }],
      }),
    ),
  );
  const lost = reasonsOf(detail.reasons);
  return [
    make(
      "div",
      { class: "title" },
      make("h2", {}, detail.name),
      make("span", { class: "state " + (detail.ready ? "good" : "bad") }, detail.state),
      make(
        "span",
        { class: "soft" },
        [
          "SLO " + slo(detail.slo_ms),
          "policy " + detail.policy,
          "sub-cluster " + detail.subcluster,
          "on " + plural(detail.backends, "backend"),
        ].join(" · "),
      ),
    ),
    ...(detail.reason ? [make("p", { class: "bad" }, detail.reason)] : []),
    charts,
    ...(lost.length
      ? [
          make(
            "section",
            { class: "card" },
            make("h2", {}, "Lost in the last hour"),
            legend(
              lost.map(([reason, count]) => [
                reason.split(" ")[0],
                reason.split(" ").slice(1).join(" "),
                number(count),
              ]),
            ),
          ),
        ]
      : []),
    make(
      "div",
      { class: "charts" },
      make(
        "section",
        { class: "card" },
        make("h2", {}, "Dropped or failed, newest first"),
        requests(list(detail.unserved), "No request was dropped or failed in the last ten minutes", detail),
      ),
      make(
        "section",
        { class: "card" },
        make("h2", {}, "Slowest of the last ten minutes"),
        requests(list(detail.slowest), "No request has run in the last ten minutes", detail),
      ),
    ),
  ];
}
function requests(examples, nothing, detail) {
  if (!examples.length) return make("div", { class: "empty" }, nothing);
  const rows = examples.flatMap((example) => {
    const told = state.explained.get(example.request),
      at = new Date(example.at_unix_ms),
      slow = example.elapsed_ms > detail.slo_ms;
    const row = make(
      "tr",
      {
        class: "row" + (state.marked === example.request ? " marked" : ""),
        "data-key": example.request,
        "data-explain": example.request,
      },
      make(
        "td",
        { class: "name" },
        make(
          "button",
          { type: "button", "aria-expanded": known(told) ? "true" : "false", "data-explain": example.request },
          example.request,
        ),
      ),
      make("td", { "data-label": "ended", title: at.toISOString() }, clock(at)),
      make(
        "td",
        { class: "number", "data-label": "took" },
        make("span", { class: slow ? "bad" : "" }, ms(example.elapsed_ms)),
      ),
      make("td", { "data-label": "outcome" }, `${example.outcome.replace("_", " ")} ${example.reason}`.trim()),
    );
    if (!known(told)) return [row];
    return [
      row,
      make(
        "tr",
        { "data-key": example.request + " explained" },
        make("td", { colspan: "4", class: "wide" }, make("pre", { tabindex: "0" }, told)),
      ),
    ];
  });
  return make(
    "div",
    { class: "scrolls" },
    make(
      "table",
      { class: "requests" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...["Request", "Ended", "Took", "Outcome"].map((title, at) =>
            make("th", { scope: "col", class: at === 2 ? "number" : null }, title),
          ),
        ),
      ),
      make("tbody", {}, ...rows),
    ),
  );
}

// A model keeps its colour while the page is open.
function hue(name) {
  if (!state.hues.has(name)) state.hues.set(name, state.hues.size % 8);
  return "hue-" + state.hues.get(name);
}
const batchWords = (batch) =>
  [
    `${batch.model} #${batch.number}: ${plural(batch.items, "item")}`,
    `${ms(batch.ms)} (planned ${ms(batch.planned_ms)})`,
    `began ${ms(batch.began_ago_ms)} ago`,
    batch.outcome.replace("_", " "),
  ].join(", ");

export function gpusView(detail) {
  const span = state.span.gpus,
    batches = list(detail.batches),
    width = window.innerWidth > 820 ? chartWidth(1) - 284 : chartWidth(1);
  const gpus = list(detail.gpus).filter((gpu) =>
    matches("g" + gpu.id, gpu.kind, gpu.backend, gpu.subcluster, gpu.state),
  );
  const byGpu = new Map(gpus.map((gpu) => [gpu.id, []]));
  for (const batch of batches) byGpu.get(batch.gpu)?.push(batch);
  const models = [...new Set(batches.map((batch) => batch.model))].sort();
  models.forEach(hue);
  const rows = gpus.map((gpu) => {
    const bars = byGpu
      .get(gpu.id)
      .filter((batch) => batch.began_ago_ms - batch.ms < span && batch.began_ago_ms > 0)
      .map((batch) => ({
        from_ms: batch.began_ago_ms,
        to_ms: Math.max(0, batch.began_ago_ms - batch.ms),
        key: `${batch.model} ${batch.number}`,
        className:
          hue(batch.model) + (batch.outcome === "running" ? " running" : batch.outcome === "late" ? " missed" : ""),
        title: batchWords(batch),
      }));
    return make(
      "div",
      { class: "lane", "data-key": "g" + gpu.id },
      make(
        "div",
        {},
        make("b", {}, "g" + gpu.id),
        " ",
        make("span", { class: gpu.state === "up" ? "soft" : "state bad" }, gpu.state === "up" ? gpu.kind : gpu.state),
        make(
          "div",
          { class: "sub" },
          `${gpu.backend} · ${gpu.subcluster} · ${percent(gpu.busy)} busy · ${rate(gpu.batches_per_s)}/s`,
        ),
      ),
      lane({ width, span, bars, label: `g${gpu.id}: ${bars.length} batches in the last ${spanWords(span, "ms")}` }),
    );
  });
  const axis = make("div", { class: "lane" }, make("div", {}), laneAxis({ width, span }));
  return [
    make(
      "section",
      { class: "card" },
      make(
        "div",
        { class: "legend" },
        ...models
          .slice(0, 16)
          .map((name) =>
            make("a", { href: modelLink(name) }, make("span", { class: hue(name) }, make("i", {})), name),
          ),
      ),
      make(
        "div",
        { class: "readout", role: "status" },
        state.readout || "A bar is a batch; point at one to read it. Outlined in red: it ended after its deadline.",
      ),
      ...(rows.length
        ? [...rows, axis]
        : [
            make(
              "div",
              { class: "empty" },
              list(detail.gpus).length ? "No GPU has this in its name" : "No backend has registered",
            ),
          ]),
    ),
  ];
}

export function eventsView(cluster) {
  const events = list(cluster.events)
    .slice()
    .reverse()
    .filter((event) => matches(event.what, event.actor, event.refusal));
  const rows = events.map((event) => {
    const at = event.at_unix_ms ? new Date(event.at_unix_ms) : null;
    return make(
      "li",
      { "data-key": `${event.index} ${event.what}` },
      make(
        "time",
        { datetime: at && at.toISOString(), title: at && at.toISOString() },
        at ? `${day(at)} ${clock(at)}` : "time unknown",
      ),
      make(
        "span",
        { class: "soft" },
        at ? ago((cluster.now_unix_ms - event.at_unix_ms) / 1000) : "log " + event.index,
      ),
      make(
        "span",
        { class: "what" },
        event.actor ? make("b", {}, event.actor + ": ") : null,
        event.what,
        event.refusal ? make("span", { class: "bad" }, " – refused: " + event.refusal) : null,
      ),
    );
  });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  return [
    make(
      "section",
      { class: "card" },
      rows.length
        ? make("ul", { class: "events" }, ...rows)
        : make(
            "div",
            { class: "empty" },
            list(cluster.events).length ? "No event has these words" : "Nothing has happened yet",
          ),
    ),
    make(
      "p",
      { class: "soft" },
      `Times are of ${zone}; the clock is the control group leader's. Older ones: symphony get events.`,
    ),
  ];
}

export function processesView(cluster) {
  const rows = list(cluster.processes)
    .filter((process) => matches(process.role, process.name, process.id, process.addr, process.note))
    .map((process) => {
      const isMe = process.role === cluster.role && [process.name, process.id].includes(cluster.name);
      const health = process.left
        ? ["soft", "left"]
        : process.up === true
          ? ["good", "up"]
          : process.up === false
            ? ["bad", downWords(process)]
            : ["soft", "unknown"];
      const note = [
        process.control_leader ? "leads the control group" : null,
        process.note || null,
        process.drained ? "drained" : null,
        process.moves_to ? "moves to " + process.moves_to : null,
        isMe ? "serves this page" : null,
      ];
      return make(
        "tr",
        { "data-key": process.role + process.id },
        make(
          "td",
          { class: "name" },
          process.name || process.id,
          make("span", { class: "sub" }, process.role + (process.name ? " " + process.id : "")),
        ),
        make("td", { class: "state-cell" }, make("span", { class: "state " + health[0] }, health[1])),
        make("td", { "data-label": "duty" }, process.duty),
        make("td", { "data-label": "address", class: "address" }, process.addr),
        make("td", { "data-label": "version", class: process.version ? null : "minor" }, process.version || "–"),
        make("td", { class: "wide" }, note.filter(known).join(" · ")),
      );
    });
  const heads = ["Process", "Health", "Duty", "Address", "Version", ""].map((title) =>
    make("th", { scope: "col" }, title),
  );
  const subclusters = list(cluster.subclusters).map((subcluster) =>
    make(
      "tr",
      { "data-key": subcluster.name },
      make("td", { class: "name" }, subcluster.name),
      make(
        "td",
        { class: "state-cell" },
        known(subcluster.leader)
          ? `led by n${subcluster.leader}`
          : make("span", { class: "state bad" }, "nobody leads it"),
      ),
      make(
        "td",
        { "data-label": "policy", class: subcluster.policy_failed ? "bad" : null },
        subcluster.policy_failed
          ? `auto (${subcluster.policy} ${subcluster.policy_failed})`
          : subcluster.policy || "auto",
      ),
      make("td", { class: "number", "data-label": "models" }, number(subcluster.models)),
      make("td", { class: "number", "data-label": "GPUs" }, number(subcluster.gpus)),
      make("td", { class: "number", "data-label": "queue" }, number(subcluster.queued)),
      make("td", { class: "number", "data-label": "idle" }, percent(subcluster.idle_fraction)),
      make(
        "td",
        { class: "number", "data-label": "demand" },
        known(subcluster.demand_gpus) ? number(subcluster.demand_gpus, 1) + " GPUs" : "–",
      ),
    ),
  );
  const subheads = ["Sub-cluster", "Leader", "Policy", "Models", "GPUs", "Queue", "GPU time idle", "Demand"].map(
    (title, at) => make("th", { scope: "col", class: at > 2 ? "number" : null }, title),
  );
  return [
    make(
      "section",
      { class: "card scrolls" },
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)),
    ),
    make(
      "section",
      { class: "card scrolls" },
      make("table", {}, make("thead", {}, make("tr", {}, ...subheads)), make("tbody", {}, ...subclusters)),
    ),
  ];
}
