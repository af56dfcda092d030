// Line plots over time, as SVG. Single values can be read with the pointer, the keys or a screen reader.

import { h, put, s } from "./dom.js";
import { hour } from "./format.js";

const HEIGHT = 172;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
const MOST_POINTS = 400;
/** The approximate width of a letter. */
const LETTER = 6;

/**
 * Creates a plot. `lines` are `{label, of(point), unit(value), missing}`, at most three; each has its own
 * colour and dashes. `unit` formats the values on the axis. Where a line has no value, the plot shows the
 * line's text `missing`, if it has one.
 */
export function plot({ title, hint, lines, unit }) {
  const legend = h("ul", { class: "legend" });
  const area = h("div", {
    class: "plot", tabindex: "0", role: "img",
    onpointermove: (event) => cross(event.clientX - area.getBoundingClientRect().left),
    onpointerleave: () => cross(null),
    onblur: () => cross(null),
    onkeydown: walk,
  });
  const element = h("section", { class: "panel" },
    h("div", { class: "top" }, h("h2", { title: hint }, title), h("span", { class: "spring" }), legend),
    h("div", { class: "content" }, area));
  let points = [];
  let range = { from: 0, to: 1 };
  let width = 0;
  let at = null;
  const marks = s("g");
  const tip = h("div", { class: "tip", hidden: true });

  const height = () => Math.max(110, area.firstElementChild?.clientHeight || HEIGHT);
  const x = (moment) => LEFT + ((moment - range.from) / (range.to - range.from)) * (width - LEFT - 4);

  function draw() {
    width = area.clientWidth;
    if (width === 0) return;
    const tall = height();
    const shown = thin(points);
    const top = ceiling(Math.max(0, ...lines.flatMap((line) => shown.map((point) => line.of(point) ?? 0))));
    const y = (value) => tall - BOTTOM - (value / top) * (tall - BOTTOM - TOP);
    const grid = [0, top / 2, top].flatMap((value) => [
      s("line", { class: value === 0 ? "base" : "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      s("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, unit(value)),
    ]);
    const times = moments(range, width).map((moment) =>
      s("text", { x: x(moment), y: tall - 5, "text-anchor": "middle" }, hour(moment, range.to - range.from < 300_000)));
    const voids = lines.filter((line) => line.missing).flatMap((line) => gaps(shown, line).map(({ from, to }) => {
      const [left, right] = [x(from), x(to)];
      const fits = right - left > line.missing.length * LETTER;
      return s("g", null, s("title", null, line.missing),
        s("rect", { class: "void", x: left, y: TOP, width: Math.max(1, right - left), height: tall - BOTTOM - TOP }),
        fits && s("text", { class: "void-text", x: (left + right) / 2, y: TOP + 14, "text-anchor": "middle" }, line.missing));
    }));
    const drawn = lines.flatMap((line, index) => runs(shown, line).flatMap((run) => {
      const path = run.map((point, step) => `${step === 0 ? "M" : "L"}${x(point.moment).toFixed(1)} ${y(line.of(point)).toFixed(1)}`).join("");
      const closed = `${path}L${x(run.at(-1).moment).toFixed(1)} ${y(0)}L${x(run[0].moment).toFixed(1)} ${y(0)}Z`;
      return [
        index === 0 && run.length > 1 && s("path", { class: "area line-1", d: closed }),
        run.length > 1 ? s("path", { class: `path line-${index + 1}`, d: path })
          : s("circle", { class: `dot line-${index + 1}`, cx: x(run[0].moment), cy: y(line.of(run[0])), r: 2.5 }),
      ];
    }));
    const frame = s("svg", { viewBox: `0 0 ${width} ${tall}`, "aria-hidden": "true" }, voids, grid, times, drawn, marks);
    put(area, frame, tip);
    put(legend, lines.map((line, index) => h("li", null,
      s("svg", { viewBox: "0 0 18 6", "aria-hidden": "true" }, s("line", { class: `line-${index + 1}`, x1: 0, x2: 18, y1: 3, y2: 3 })),
      line.label, h("b", null, said(line, points.at(-1))))));
    area.setAttribute("aria-label", describe(shown));
    if (at !== null) point(at);
  }

  function describe(shown) {
    if (shown.length === 0) return `${title}: nothing measured yet`;
    const parts = lines.map((line) => {
      const values = shown.map(line.of).filter((value) => value !== null && value !== undefined);
      if (values.length === 0) return `${line.label}: nothing`;
      return `${line.label}: now ${said(line, shown.at(-1))}, lowest ${line.unit(Math.min(...values))}, highest ${line.unit(Math.max(...values))}`;
    });
    return `${title}. ${parts.join(". ")}. Left and right arrow keys read single points.`;
  }

  function cross(left) {
    if (left === null || points.length === 0) {
      at = null;
      put(marks);
      tip.hidden = true;
      return;
    }
    const wanted = range.from + ((left - LEFT) / (width - LEFT - 4)) * (range.to - range.from);
    let best = 0;
    points.forEach((one, index) => {
      if (Math.abs(one.moment - wanted) < Math.abs(points[best].moment - wanted)) best = index;
    });
    point(points[best]);
  }

  function point(one) {
    at = one;
    const left = x(one.moment);
    put(marks, s("line", { class: "cross", x1: left, x2: left, y1: TOP, y2: height() - BOTTOM }));
    put(tip, h("div", { class: "muted" }, hour(one.moment, true)),
      lines.map((line) => h("div", null, `${line.label} `, h("b", null, said(line, one)))));
    tip.hidden = false;
    const room = tip.offsetWidth;
    tip.style.setProperty("left", `${left + 12 + room > width ? Math.max(0, left - 12 - room) : left + 12}px`);
  }

  function walk(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    if (points.length === 0) return;
    event.preventDefault();
    const step = event.key === "ArrowLeft" ? -1 : 1;
    const index = at === null ? points.length - 1 : points.findIndex((one) => one.moment >= at.moment) + step;
    const next = points[Math.max(0, Math.min(points.length - 1, index))];
    point(next);
    area.setAttribute("aria-label", `${hour(next.moment, true)}: ${lines.map((line) => `${line.label} ${said(line, next)}`).join(", ")}`);
  }

  new ResizeObserver(() => { if (area.clientWidth !== width) draw(); }).observe(area);

  return {
    element,
    /** Shows those of these points (`{moment, …}`, sorted by time) that are between two moments. */
    set(next, from, to) {
      points = next;
      range = { from, to };
      draw();
    },
  };
}

function said(line, point) {
  const value = point === undefined ? null : line.of(point);
  return value === null || value === undefined ? "–" : line.unit(value);
}

/** Splits a line into the pieces between points that have no value. */
function runs(points, line) {
  const pieces = [];
  let piece = [];
  for (const point of points) {
    const value = line.of(point);
    if (value === null || value === undefined) {
      if (piece.length > 0) pieces.push(piece);
      piece = [];
    } else {
      piece.push(point);
    }
  }
  if (piece.length > 0) pieces.push(piece);
  return pieces;
}

/** Returns the spans of time in which a line has no value, each up to the next point with a value. */
function gaps(points, line) {
  const spans = [];
  let from = null;
  for (const point of points) {
    const has = (line.of(point) ?? null) !== null;
    if (!has) from ??= point.moment;
    if (from !== null && (has || point === points.at(-1))) spans.push({ from, to: point.moment });
    if (has) from = null;
  }
  return spans;
}

/** Reduces the points to at most MOST_POINTS, by the mean of each group of neighbours. */
function thin(points) {
  if (points.length <= MOST_POINTS) return points;
  const size = Math.ceil(points.length / MOST_POINTS);
  const groups = [];
  for (let at = 0; at < points.length; at += size) groups.push(points.slice(at, at + size));
  return groups.map((group) => {
    const mean = {};
    for (const name of Object.keys(group[0])) {
      const values = group.map((point) => point[name]).filter((value) => typeof value === "number");
      mean[name] = values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
    }
    return mean;
  });
}

/** Returns the next larger round number whose half is round too. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((one) => one * power >= value * 1.02) ?? 20;
  return step * power;
}

/** Returns the times to label on the axis: round ones, as many as fit. */
function moments({ from, to }, width) {
  const room = Math.max(2, Math.floor((width - LEFT) / 90));
  const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600].map((seconds) => seconds * 1000);
  const step = steps.find((one) => (to - from) / one <= room) ?? 7_200_000;
  const edge = (to - from) * 0.03;
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    if (at - from > edge && to - at > edge) all.push(at);
  }
  return all;
}
