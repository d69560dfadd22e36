// What the page knows, how it changes the document, and how it writes numbers. Every name goes through textContent or
// an attribute: nothing of it is ever taken for markup.

export const state = {
  route: { view: "models", name: null },
  cluster: null,
  detail: null,
  seen: null,
  error: null,
  paused: false,
  filter: "",
  marked: null,
  sort: { column: "trouble", down: false },
  span: { model: 3600, gpus: 1000 },
  cursor: null,
  readout: null,
  explained: new Map(),
  hues: new Map(),
};

export const byId = (id) => document.getElementById(id);
export const list = (value) => (Array.isArray(value) ? value : []);
export const known = (value) => value !== undefined && value !== null;

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (known(value) && value !== false) made.setAttribute(name, value === true ? "" : value);
  made.append(...children.filter(known).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

// Changes a node into another one, and keeps what is the same: focus, marked text, scrolled places.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes])
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  fill(old, [...fresh.childNodes]);
}
export function fill(place, children) {
  const keyed = new Map(
    [...place.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]),
  );
  children.forEach((fresh, at) => {
    const same = fresh.dataset?.key && keyed.get(fresh.dataset.key);
    if (same && same !== place.childNodes[at]) place.insertBefore(same, place.childNodes[at] || null);
    const old = place.childNodes[at];
    if (!old) place.append(fresh);
    else if (fresh.dataset?.key && !same) place.insertBefore(fresh, old);
    else morph(old, fresh);
  });
  while (place.childNodes.length > children.length) place.lastChild.remove();
}

export const number = (value, digits = 0) =>
  known(value) && Number.isFinite(value)
    ? value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits })
    : "–";
export const rate = (value) => number(value, known(value) && value > 0 && value < 10 ? 1 : 0);
export function percent(share) {
  if (!known(share)) return "–";
  // Not all is not "100 %".
  const shown = share > 0.99 && share < 1 ? Math.floor(1e4 * share) / 100 : 100 * share;
  return number(shown, share === 0 || share === 1 ? 0 : share < 0.1 || share > 0.99 ? 2 : 1) + " %";
}
export const ms = (value) =>
  !known(value)
    ? "–"
    : value >= 10000
      ? number(value / 1000, 1) + " s"
      : number(value, value < 10 ? 2 : value < 100 ? 1 : 0) + " ms";
export const slo = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 }) + " ms";
const two = (value) => String(value).padStart(2, "0");
export const clock = (at) => [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
export const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  return s < 60
    ? s + " s ago"
    : s < 3600
      ? Math.floor(s / 60) + " min ago"
      : s < 86400
        ? Math.floor(s / 3600) + " h ago"
        : Math.floor(s / 86400) + " d ago";
}
export const spanWords = (span, unit) =>
  unit === "s"
    ? span >= 3600
      ? span / 3600 + " h"
      : span / 60 + " min"
    : span >= 1000
      ? span / 1000 + " s"
      : span + " ms";
export const modelLink = (name) => "#/models/" + encodeURIComponent(name);
// `dropped queue_full` and the like, most frequent first.
export const reasonsOf = (reasons) => Object.entries(reasons || {}).sort((one, other) => other[1] - one[1]);
export const ordered = (one, other) =>
  typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
