// Charts as SVG, without a library. Each function returns an element; numbers are as they come, times are seconds.

const SVG = "http://www.w3.org/2000/svg";
const round = (value) => value.toFixed(1);
const LEFT = 56,
  RIGHT = 8,
  TOP = 8,
  BOTTOM = 20;

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Round steps of an axis from 0 to at least `top`: 1, 2 or 5 times a power of ten.
export function steps(top, wanted = 4) {
  if (!(top > 0)) return [0, 1];
  const raw = top / wanted,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= raw * 0.999);
  return Array.from({ length: Math.ceil(top / step - 1e-9) + 1 }, (_, at) => at * step);
}

const clock = (seconds, precise) =>
  new Date(seconds * 1000).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    hour12: false,
    ...(precise ? { second: "2-digit" } : {}),
  });

// Round times of a span, some hundred pixels apart.
function times(from, to, width) {
  const raw = (to - from) / Math.max(2, width / 110);
  const step = [10, 30, 60, 120, 300, 600, 900, 1800].find((each) => each >= raw) || 3600;
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  const all = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) all.push(at);
  return [all, step < 60];
}

// Frame, grid, axes with units, and where a value and a time are.
function frame({ width, height, from, to, top, unit, label, cursor, began }) {
  const values = steps(top),
    most = values[values.length - 1];
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - Math.min(value, most) / most) * (height - TOP - BOTTOM);
  const chart = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    height,
    role: "img",
    "aria-label": label,
    "data-from": from,
    "data-to": to,
  });
  // Nobody counted before.
  if (began > from)
    chart.append(
      svg("rect", {
        class: "unknown",
        x: LEFT,
        y: TOP,
        width: Math.max(0, x(Math.min(began, to)) - LEFT),
        height: height - TOP - BOTTOM,
      }),
    );
  const digits = values[1] < 1 ? Math.min(3, Math.ceil(-Math.log10(values[1]))) : 0;
  values.forEach((value, at) => {
    chart.append(
      svg("line", { class: at ? "grid" : "axis", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    );
    const text =
      value.toLocaleString("en", { maximumFractionDigits: digits, notation: most < 10000 ? "standard" : "compact" }) +
      (at === values.length - 1 && unit ? " " + unit : "");
    chart.append(svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text));
  });
  const [marks, precise] = times(from, to, width);
  for (const at of marks) {
    const anchor = x(at) > width - 30 ? "end" : x(at) < LEFT + 20 ? "start" : "middle";
    chart.append(svg("text", { x: x(at), y: height - 5, "text-anchor": anchor }, clock(at, precise)));
    chart.append(svg("line", { class: "axis", x1: x(at), x2: x(at), y1: height - BOTTOM, y2: height - BOTTOM + 3 }));
  }
  const finish = () => {
    if (cursor >= from && cursor <= to)
      chart.append(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: TOP, y2: height - BOTTOM }));
    return chart;
  };
  return { chart, x, y, finish };
}

// The time under a pointer, on any chart of `frame`.
export function timeAt(chart, clientX) {
  const box = chart.getBoundingClientRect(),
    width = chart.viewBox.baseVal.width;
  const from = Number(chart.dataset.from),
    to = Number(chart.dataset.to);
  const share = (((clientX - box.left) / box.width) * width - LEFT) / (width - LEFT - RIGHT);
  return from + Math.min(1, Math.max(0, share)) * (to - from);
}

// Lines over time: `series` are { className, values } with a value, or null, for each of `at`. A line at `limit`.
export function lines(options) {
  const { at, step, series, limit, limitLabel } = options;
  const { chart, x, y, finish } = frame(options);
  for (const { className, values } of series) {
    let path = "",
      open = false;
    values.forEach((value, index) => {
      if (value === null || value === undefined) {
        open = false;
        return;
      }
      const middle = x(at[index] + step / 2).toFixed(1),
        height = y(value).toFixed(1);
      // A value between two gaps is a short line, or it could not be seen.
      path += open ? `L${middle} ${height}` : `M${(middle - 1.5).toFixed(1)} ${height}L${middle} ${height}`;
      open = true;
    });
    chart.append(svg("path", { class: "line " + className, d: path }));
  }
  if (limit > 0) {
    chart.append(svg("line", { class: "slo", x1: x(options.from), x2: x(options.to), y1: y(limit), y2: y(limit) }));
    chart.append(svg("text", { class: "slo", x: x(options.from) + 4, y: y(limit) - 4 }, limitLabel));
  }
  return finish();
}

// Columns over time that stand on each other, the first at the bottom.
export function stacks(options) {
  const { at, step, series } = options;
  const { chart, x, y, finish } = frame(options);
  const below = at.map(() => 0);
  for (const { className, values } of series) {
    let path = "";
    at.forEach((begin, index) => {
      const value = values[index] || 0;
      if (value <= 0) return;
      const [left, right] = [x(Math.max(begin, options.from)), x(Math.min(begin + step, options.to))];
      const [low, high] = [y(below[index]), y(below[index] + value)];
      below[index] += value;
      if (right > left) path += `M${round(left)} ${round(low)}V${round(high)}H${round(right + 0.3)}V${round(low)}Z`;
    });
    if (path) chart.append(svg("path", { class: "area " + className, d: path }));
  }
  return finish();
}

// A small chart in a table: all requests, and the bad ones in front. `points` are [all, bad].
export function spark(points, label) {
  const width = 120,
    height = 26,
    most = Math.max(1, ...points.map(([all]) => all));
  const chart = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  const each = width / Math.max(1, points.length);
  for (const [which, className] of [
    [0, "in-time"],
    [1, "dropped"],
  ]) {
    let path = "";
    points.forEach((point, index) => {
      if (point[which] <= 0) return;
      const tall = Math.max(1.5, (point[which] / most) * (height - 2));
      path += `M${(index * each).toFixed(1)} ${height}v${(-tall).toFixed(1)}h${(each - 0.8).toFixed(1)}V${height}Z`;
    });
    if (path) chart.append(svg("path", { class: "area " + className, d: path }));
  }
  chart.append(svg("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }));
  return chart;
}

// How much of a limit is used, at most all of it.
export function meter(share, className) {
  const used = 52 * Math.min(1, Math.max(0, share || 0));
  return svg(
    "svg",
    { class: "meter", viewBox: "0 0 52 6", "aria-hidden": "true" },
    svg("rect", { class: "unknown", width: 52, height: 6, rx: 3 }),
    svg("rect", { class: "used " + className, width: used.toFixed(1), height: 6, rx: 3 }),
  );
}

// What a GPU ran between `span` ms ago and now: `bars` are { from_ms, to_ms, className, title, key }, ages.
export function lane({ width, span, bars, label }) {
  const height = 30,
    x = (age) => (1 - age / span) * width;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  chart.append(svg("rect", { class: "unknown", x: 0, y: 3, width, height: height - 6 }));
  for (const bar of bars) {
    const left = Math.max(0, x(bar.from_ms)),
      right = Math.min(width, x(bar.to_ms));
    if (right <= 0 || left >= width) continue;
    const wide = Math.max(1, right - left - 0.7);
    chart.append(
      svg("rect", {
        class: bar.className,
        x: left.toFixed(1),
        y: 3,
        width: wide.toFixed(1),
        height: height - 6,
        rx: Math.min(2, wide / 3),
        "data-title": bar.title,
        "data-key": bar.key,
      }),
    );
  }
  return chart;
}

// The axis below lanes.
export function laneAxis({ width, span }) {
  const chart = svg("svg", { viewBox: `0 0 ${width} 18`, height: 18, "aria-hidden": "true" });
  for (const ago of steps(span, Math.max(2, width / 120)).filter((each) => each <= span)) {
    const x = (1 - ago / span) * width,
      anchor = ago === 0 ? "end" : x < 20 ? "start" : "middle";
    chart.append(
      svg(
        "text",
        { x, y: 13, "text-anchor": anchor },
        ago === 0 ? "now" : ago >= 1000 ? `−${ago / 1000} s` : `−${ago} ms`,
      ),
    );
  }
  return chart;
}
