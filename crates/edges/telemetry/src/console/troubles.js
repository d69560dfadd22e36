// What is wrong with a cluster, in words, the worst first: what is read first at night.

import { list, known, make, number, rate, percent, ms, slo, modelLink, reasonsOf } from "./base.js";

const TROUBLES_MAX = 8; // more are counted
export const BAD_SHARE = 0.01; // requests that may miss the SLO: goodput is judged by the p99
const SILENT_S = 2; // a replica that is heard may be down, too

// What a process is that is not up.
export const downWords = (process) =>
  process.silent_s >= SILENT_S ? `silent for ${number(process.silent_s)} s` : "down";

// How bad a model is: 2 it serves nobody, 1 it misses its SLO or refuses, 0 nothing.
export function modelTrouble(model) {
  const now = model.now;
  if (!model.ready) return 2;
  // Late requests are counted one by one; a p99 from buckets may stand beyond an SLO that none missed.
  if (now.bad_rate > BAD_SHARE || now.refused_rps > 0) return 1;
  return 0;
}
export function troubles(cluster) {
  const found = [],
    add = (level, words, model) => found.push({ level, words, model });
  for (const note of list(cluster.notes)) add("warn", note);
  if (!known(cluster.control_leader))
    add("bad", "no leader of the control group is known: what runs goes on, nothing can be changed");
  for (const subcluster of list(cluster.subclusters))
    if (!known(subcluster.leader)) add("bad", `nobody leads sub-cluster ${subcluster.name}: its models wait`);
  for (const model of list(cluster.models)) {
    const now = model.now;
    if (!model.ready) {
      const lost = now.refused_rps + now.failed_rps;
      const why = model.reason && !model.state.includes(model.reason) ? " – " + model.reason : "";
      add("bad", model.state + why + (lost > 0 ? `; ${rate(lost)} requests/s refused or failed` : ""), model.name);
      continue;
    }
    const why = reasonsOf(now.reasons)
      .map(([reason]) => reason)
      .filter((reason) => !reason.startsWith("refused"))[0];
    const missed = `${percent(now.bad_rate)} of requests miss the SLO of ${slo(model.slo_ms)}; p99 ${ms(now.p99_ms)}`;
    if (now.bad_rate > BAD_SHARE) add("bad", missed + (why ? "; most: " + why : ""), model.name);
    if (now.refused_rps > 0) {
      const [top] = reasonsOf(now.reasons).filter(([reason]) => reason.startsWith("refused"));
      add(
        "warn",
        `${rate(now.refused_rps)} requests/s refused${top ? ": " + top[0].slice("refused ".length) : ""}`,
        model.name,
      );
    }
  }
  for (const process of list(cluster.processes)) {
    const name = `${process.role} ${process.name || process.id}`;
    if (process.up === false && process.left !== true) add("bad", `${name} is ${downWords(process)}`);
  }
  const gone = list(cluster.gpus).filter((gpu) => gpu.up && gpu.state !== "up");
  for (const gpu of gone.slice(0, 3)) add("warn", `GPU g${gpu.id} of ${gpu.backend}: ${gpu.state}`);
  if (gone.length > 3) add("warn", `${gone.length - 3} more GPUs take no work`);
  return found.sort((one, other) => (other.level === "bad") - (one.level === "bad"));
}
// On its own page a model's troubles come first, and the others are counted.
export function ofModel(found, name) {
  const own = found.filter((trouble) => trouble.model === name),
    others = found.length - own.length;
  const level = found.some((trouble) => trouble.model !== name && trouble.level === "bad") ? "bad" : "warn";
  return others
    ? [
        ...own,
        {
          level,
          words: `${others} more ${others === 1 ? "thing is" : "things are"} wrong in the cluster`,
          href: "#/",
        },
      ]
    : own;
}
export function troubleList(found) {
  const rows = found
    .slice(0, TROUBLES_MAX)
    .map(({ level, words, model, href }) =>
      make(
        "li",
        { class: level },
        model ? make("a", { href: modelLink(model) }, model) : null,
        model ? " " : null,
        href ? make("a", { href }, words) : words,
      ),
    );
  if (found.length > TROUBLES_MAX)
    rows.push(make("li", { class: "warn" }, `and ${found.length - TROUBLES_MAX} more`));
  return rows.length ? [make("ul", {}, ...rows)] : [];
}
