// The console: asks once a second, makes the whole view anew, and changes in the document what differs.

import { state, byId, known, make, fill, number, spanWords } from "./base.js";
import { timeAt } from "./charts.js";
import { troubles, ofModel, troubleList } from "./troubles.js";
import { COLUMNS, modelsView, modelView, gpusView, eventsView, processesView } from "./views.js";

const PERIOD_MS = 1000;
const ANSWER_WITHIN_MS = 8000; // longer than the 6 s after which a process says that the cluster does not answer
const VIEWS = ["models", "gpus", "events", "processes"];
const SPANS = { model: [300, 900, 3600], gpus: [200, 1000, 5000, 20000] }; // s and ms

function spanKind() {
  return state.route.view === "model" ? "model" : state.route.view === "gpus" ? "gpus" : null;
}

function show() {
  const { cluster, detail, route } = state,
    found = cluster ? troubles(cluster) : [];
  const stale = state.seen === null ? null : (performance.now() - state.seen) / 1000;
  const late = state.error && (stale === null || stale > 3);
  byId("age").textContent = state.paused
    ? "paused: Space goes on"
    : late
      ? `no answer${stale === null ? "" : `; this is ${number(stale)} s old`}: ${state.error}`
      : stale === null
        ? "asking …"
        : found.length
          ? "live"
          : "live, nothing is wrong";
  byId("age").className = late ? "bad" : state.paused ? "warn" : "soft";
  for (const link of document.querySelectorAll("nav a")) {
    const on = link.dataset.view === (route.view === "model" ? "models" : route.view);
    if (on) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const level =
    !cluster || late ? "" : found.some((trouble) => trouble.level === "bad") ? "bad" : found.length ? "warn" : "good";
  byId("lamp").className = "lamp " + level;
  byId("filter").hidden = route.view === "model";
  const kind = spanKind();
  byId("spans").hidden = !kind;
  fill(
    byId("spans"),
    kind
      ? SPANS[kind].map((span) =>
          make(
            "button",
            { type: "button", "data-span": span, "aria-pressed": String(state.span[kind] === span) },
            spanWords(span, kind === "model" ? "s" : "ms"),
          ),
        )
      : [],
  );
  fill(byId("troubles"), troubleList(route.view === "model" ? ofModel(found, route.name) : found));
  if (cluster) {
    byId("cluster").textContent = cluster.cluster || "Symphony";
    document.title =
      (level === "bad" ? "(!) " : "") + (route.name ? route.name + " – " : "") + (cluster.cluster || "Symphony");
    byId("versions").textContent = [
      `told by ${cluster.role} ${cluster.name}, Symphony ${cluster.version}`,
      `epoch ${cluster.epoch}`,
      `log index ${cluster.applied_index}`,
      known(cluster.control_leader) ? `control group led by n${cluster.control_leader}` : null,
      `rates are of the last ${number(cluster.over_s)} s`,
    ]
      .filter(known)
      .join(" · ");
  }
  const place = byId("view");
  if (route.view === "model" || route.view === "gpus") {
    const fits = detail && detail.of === key(route);
    if (fits && detail.error) fill(place, [make("div", { class: "card empty" }, detail.error)]);
    else if (fits) fill(place, route.view === "model" ? modelView(detail) : gpusView(detail));
    else fill(place, [make("div", { class: "card empty" }, "asking …")]);
  } else if (cluster) {
    fill(
      place,
      route.view === "events"
        ? eventsView(cluster)
        : route.view === "processes"
          ? processesView(cluster)
          : modelsView(cluster),
    );
  } else {
    fill(place, [make("div", { class: "card empty" }, state.error || "asking …")]);
  }
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN_MS) });
  const told = await answer.json().catch(() => ({ error: "status " + answer.status }));
  if (!answer.ok) throw Object.assign(new Error(told.error || "status " + answer.status), { status: answer.status });
  return told;
}
const key = (route) => route.view + " " + (route.name || "");

async function look() {
  const route = state.route,
    of = key(route);
  const path =
    route.view === "model"
      ? "api/console/model?name=" + encodeURIComponent(route.name)
      : route.view === "gpus"
        ? "api/console/gpus"
        : null;
  const detailed = path ? ask(path).catch((error) => ({ error: error.message, status: error.status })) : null;
  try {
    state.cluster = await ask("api/console");
    const detail = await detailed;
    if (of === key(state.route)) {
      // A process that is too busy for one answer has said nothing about the model.
      if (detail && detail.error && detail.status !== 404 && state.detail?.of === of) throw new Error(detail.error);
      state.detail = detail && { ...detail, of };
    }
    [state.seen, state.error] = [performance.now(), null];
  } catch (error) {
    state.error = error.name === "TimeoutError" ? `nothing within ${ANSWER_WITHIN_MS / 1000} s` : error.message;
  }
  show();
}

let timer = null,
  looking = false;
async function poll() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  const asked = key(state.route);
  if (!state.paused && !document.hidden) await look();
  else show();
  looking = false;
  timer = setTimeout(poll, asked === key(state.route) ? PERIOD_MS : 0);
}

async function explain(request) {
  if (state.explained.has(request)) {
    state.explained.delete(request);
    show();
    return;
  }
  state.explained.set(request, "asking the leaders …");
  show();
  try {
    const told = await ask("api/console/explain?request=" + encodeURIComponent(request));
    state.explained.set(request, [...told.explanations, ...told.notes].join("\n").trim());
  } catch (error) {
    state.explained.set(request, error.message);
  }
  show();
}

// A name in an address, or the text as it is if it was written by hand and is no such name.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function go() {
  const [view, ...name] = location.hash.replace(/^#\/?/, "").split("/");
  const named = view === "models" && name.length ? decoded(name.join("/")) : null;
  state.route = { view: named ? "model" : VIEWS.includes(view) ? view : "models", name: named };
  Object.assign(state, { marked: null, cursor: null, readout: null });
  byId("view").dataset.view = state.route.view;
  window.scrollTo(0, 0);
  show();
  poll();
}

// Keys and pointers.

function sortBy(column) {
  const same = state.sort.column === column,
    words = column === "Model" || column === "State";
  state.sort = { column, down: same ? !state.sort.down : !words };
  show();
}
function changeSpan(by) {
  const kind = spanKind();
  if (!kind) return;
  const spans = SPANS[kind],
    at = spans.indexOf(state.span[kind]) + by;
  state.span[kind] = spans[Math.min(spans.length - 1, Math.max(0, at))];
  show();
}
function mark(by) {
  const rows = [...document.querySelectorAll("#view tr.row")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.dataset.key === state.marked);
  const row = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  state.marked = row.dataset.key;
  show();
  row.scrollIntoView({ block: "nearest" });
}
function open(row) {
  if (row?.dataset.open) location.hash = row.dataset.open;
  else if (row?.dataset.explain) explain(row.dataset.explain);
}
function moveCursor(by) {
  if (state.route.view !== "model" || !state.detail?.now_s) return;
  const { now_s: to, slot_s: step } = state.detail,
    from = to - state.span.model;
  state.cursor = Math.min(to, Math.max(from, (state.cursor ?? to) + by * step));
  show();
}
function back() {
  if (state.cursor !== null) {
    state.cursor = null;
    show();
  } else if (state.filter) {
    byId("filter").value = "";
    state.filter = "";
    show();
  } else if (state.route.view === "model") location.hash = "#/";
  else {
    state.marked = null;
    show();
  }
}

const KEYS = {
  j: () => mark(1),
  k: () => mark(-1),
  ArrowDown: () => mark(1),
  ArrowUp: () => mark(-1),
  Escape: back,
  Enter: () => open(document.querySelector("#view tr.marked")),
  "/": () => {
    byId("filter").focus();
    byId("filter").select();
  },
  "?": () => byId("help").showModal(),
  "[": () => changeSpan(-1),
  "]": () => changeSpan(1),
  ArrowLeft: () => moveCursor(-1),
  ArrowRight: () => moveCursor(1),
  " ": () => {
    state.paused = !state.paused;
    show();
    poll();
  },
  s: () => {
    if (state.route.view === "models")
      sortBy(COLUMNS[(COLUMNS.findIndex(([title]) => title === state.sort.column) + 1) % COLUMNS.length][0]);
  },
  r: () => {
    state.sort.down = !state.sort.down;
    show();
  },
  ...Object.fromEntries(
    VIEWS.map((view, at) => [
      String(at + 1),
      () => {
        location.hash = view === "models" ? "#/" : "#/" + view;
      },
    ]),
  ),
};
document.addEventListener("keydown", (pressed) => {
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || byId("help").open) return;
  const inField = pressed.target instanceof HTMLInputElement;
  if (inField && pressed.key !== "Escape" && pressed.key !== "Enter") return;
  if (inField) {
    pressed.target.blur();
    if (pressed.key === "Enter") {
      mark(1);
      return;
    }
  }
  // A button or a link does what it is for.
  if (["Enter", " "].includes(pressed.key) && pressed.target.closest?.("a, button")) return;
  const act = KEYS[pressed.key];
  if (!act) return;
  pressed.preventDefault();
  act();
});
document.addEventListener("click", (clicked) => {
  const target = clicked.target.closest("[data-sort], [data-span], a, button, tr.row, rect[data-title]");
  if (!target || target.closest("dialog")) return;
  if (target.dataset.sort) sortBy(target.dataset.sort);
  else if (target.dataset.span) {
    state.span[spanKind()] = Number(target.dataset.span);
    show();
  } else if (target.id === "keys") byId("help").showModal();
  else if (target.dataset.title) {
    state.readout = target.dataset.title;
    show();
  } else if (target.dataset.explain) explain(target.dataset.explain);
  // Whoever marks text in a row wants to copy it.
  else if (target.dataset.open && !String(getSelection())) open(target);
});
byId("view").addEventListener("pointermove", (moved) => {
  const over = moved.target.closest("svg[data-from]"),
    bar = moved.target.closest("rect[data-title]");
  if (over && state.route.view === "model") {
    state.cursor = timeAt(over, moved.clientX);
    show();
  } else if (bar && state.readout !== bar.dataset.title) {
    state.readout = bar.dataset.title;
    show();
  }
});
byId("view").addEventListener("pointerleave", () => {
  if (state.cursor !== null) {
    state.cursor = null;
    show();
  }
});
byId("filter").addEventListener("input", () => {
  state.filter = byId("filter").value.trim().toLowerCase();
  show();
});
window.addEventListener("hashchange", go);
window.addEventListener("resize", show);
document.addEventListener("visibilitychange", poll);
go();
