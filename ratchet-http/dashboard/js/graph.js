// The graph of a workflow: what came before stands left of what follows it.

import { meaning, tone } from "./badges.js";
import { h, s } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

const WIDE = 164;
const TALL = 46;
const GAP_X = 52;
const GAP_X_WORDS = 118;
const GAP_Y = 16;
const SWEEPS = 4;
const LETTERS = 20;

const CONDITIONS = {
  succeeded: () => "",
  failed: () => "if it failed",
  ended: () => "however it ends",
  result_is: (pointer) => `by its result ${pointer}`,
  failures_reach: (count) => `${count} failures`,
  succeeded_at_least: (percent) => `≥ ${percent} % succeeded`,
};

/** The graph as a drawing in which every job is a link; `self` is the one the page is about. */
export function graph({ nodes, edges }, self) {
  const known = new Set(nodes.map((node) => node.id));
  const links = edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const { places, bends } = layout(nodes, links);
  const across = Math.max(...nodes.map((node) => places.get(node.id).x)) + WIDE + 4;
  const down = Math.max(...nodes.map((node) => places.get(node.id).y)) + TALL + 4;
  const drawing = s("svg", {
    width: across, height: down, viewBox: `-2 -2 ${across} ${down}`, role: "group",
    "aria-label": `Workflow of ${nodes.length} jobs and batches with ${links.length} links`,
  }, links.map((edge) => link(edge, { places, bends })),
  nodes.map((node) => box(node, places.get(node.id), node.id === self)));
  return h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Workflow graph" }, drawing);
}

function box(node, { x, y }, isSelf) {
  const batch = node.type === "batch";
  const name = node.kind ?? (batch ? "batch" : "purged job");
  const state = batch ? brief(node.id) : (node.state ?? "no longer stored");
  const shape = s("g", { transform: `translate(${x} ${y})`, class: isSelf ? "this" : null },
    s("title", null, `${name}, ${state}${node.state ? `: ${meaning(node.state)}` : ""}\n${node.id}`),
    s("rect", { class: "box", width: WIDE, height: TALL, rx: batch ? 14 : 6 }),
    s("rect", { class: `stripe-${tone(node.state)}`, x: 7, y: 8, width: 4, height: TALL - 16, rx: 2 }),
    s("text", { class: "kind", x: 20, y: 20 }, cut(name, LETTERS)),
    s("text", { class: "state", x: 20, y: 36 }, `${state}${isSelf ? " · this job" : ""}`));
  if (!batch && node.kind === null) return shape;
  return s("a", { href: batch ? way(["jobs"], { batch: node.id }) : way(["jobs", node.id]), "aria-label": `${name}, ${state}` }, shape);
}

function link(edge, { places, bends }) {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  const stops = [
    { x: from.x + WIDE, y: from.y + TALL / 2 },
    ...bends.get(edge).flatMap((id) => {
      const { x, y } = places.get(id);
      return [{ x, y: y + TALL / 2 }, { x: x + WIDE, y: y + TALL / 2 }];
    }),
    { x: to.x - 7, y: to.y + TALL / 2 },
  ];
  const look = { open: "waiting", unmet: "broken" }[edge.state] ?? "met";
  const label = words(edge);
  const end = stops.at(-1);
  const before = stops.at(-2);
  return s("g", null,
    s("title", null, `runs ${label || "if it succeeded"}: ${{ open: "not decided yet", met: "met", unmet: "not met" }[edge.state] ?? edge.state}`),
    s("path", { class: `edge ${look}`, d: curve(stops) }),
    s("path", { class: `head ${look}`, d: `M${end.x + 6} ${end.y}l-7 -4v8z` }),
    label && s("text", { class: "condition", x: (before.x + end.x) / 2, y: (before.y + end.y) / 2 - 4, "text-anchor": "middle" }, cut(label, 20)));
}

/** The condition of a link; nothing for the one there nearly always is. */
function words(edge) {
  const [word, rest] = String(edge.condition).split(/ (.*)/s);
  return CONDITIONS[word]?.(rest ?? "") ?? String(edge.condition);
}

/** Through the gaps in curves, along the columns straight. */
function curve(stops) {
  let path = `M${stops[0].x} ${stops[0].y}`;
  for (let at = 1; at < stops.length; at += 1) {
    const [one, two] = [stops[at - 1], stops[at]];
    const middle = (one.x + two.x) / 2;
    path += at % 2 === 1 ? `C${middle} ${one.y} ${middle} ${two.y} ${two.x} ${two.y}` : `L${two.x} ${two.y}`;
  }
  return path;
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/**
 * Columns by the longest way to a node; in each column the order with the least crossing, nearly. A link
 * that leaps over columns gets a place of its own in each of them, so that it crosses no box.
 */
function layout(nodes, edges) {
  const rank = ranks(nodes, edges);
  const columns = [];
  const neighbours = { before: new Map(), after: new Map() };
  const place = (id, at) => {
    (columns[at] ??= []).push(id);
    neighbours.before.set(id, []);
    neighbours.after.set(id, []);
  };
  for (const node of nodes) place(node.id, rank.get(node.id));
  const bends = new Map();
  for (const edge of edges) {
    const way = [];
    for (let at = rank.get(edge.from) + 1; at < rank.get(edge.to); at += 1) {
      const id = Symbol("bend");
      place(id, at);
      way.push(id);
    }
    bends.set(edge, way);
    const stops = [edge.from, ...way, edge.to];
    for (let at = 1; at < stops.length; at += 1) {
      neighbours.before.get(stops[at]).push(stops[at - 1]);
      neighbours.after.get(stops[at - 1]).push(stops[at]);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const on = sweep % 2 === 0;
    for (const ids of on ? columns : [...columns].reverse()) sortByNeighbours(ids, on ? neighbours.before : neighbours.after, columns);
  }
  const worded = new Set(edges.filter((edge) => words(edge) !== "").map((edge) => rank.get(edge.to)));
  return { places: spread(columns, worded), bends };
}

/** Bends take less room than boxes, and gaps without words less than those with. */
function spread(columns, worded) {
  const room = (id) => (typeof id === "symbol" ? TALL / 2 : TALL) + GAP_Y;
  const tall = (ids) => ids.reduce((sum, id) => sum + room(id), 0);
  const tallest = Math.max(...columns.map(tall));
  const places = new Map();
  let x = 0;
  columns.forEach((ids, at) => {
    if (at > 0) x += WIDE + (worded.has(at) ? GAP_X_WORDS : GAP_X);
    let y = (tallest - tall(ids)) / 2;
    for (const id of ids) {
      places.set(id, { x, y: typeof id === "symbol" ? y - TALL / 4 : y });
      y += room(id);
    }
  });
  return places;
}

/** The longest way to each node; one without parents stands right before what follows it. */
function ranks(nodes, edges) {
  const rank = new Map(nodes.map((node) => [node.id, 0]));
  const left = new Map(nodes.map((node) => [node.id, 0]));
  const children = new Map(nodes.map((node) => [node.id, []]));
  for (const { from, to } of edges) {
    left.set(to, left.get(to) + 1);
    children.get(from).push(to);
  }
  const roots = nodes.map((node) => node.id).filter((id) => left.get(id) === 0);
  const ready = [...roots];
  for (let at = 0; at < ready.length; at += 1) {
    for (const child of children.get(ready[at])) {
      rank.set(child, Math.max(rank.get(child), rank.get(ready[at]) + 1));
      left.set(child, left.get(child) - 1);
      if (left.get(child) === 0) ready.push(child);
    }
  }
  for (const id of roots) {
    if (children.get(id).length > 0) rank.set(id, Math.min(...children.get(id).map((child) => rank.get(child))) - 1);
  }
  return rank;
}

function sortByNeighbours(ids, neighbours, columns) {
  const row = new Map();
  for (const column of columns) column.forEach((id, at) => row.set(id, at - column.length / 2));
  const pull = new Map(ids.map((id) => {
    const rows = neighbours.get(id).map((one) => row.get(one));
    return [id, rows.length > 0 ? rows.reduce((sum, one) => sum + one, 0) / rows.length : row.get(id)];
  }));
  ids.sort((one, other) => pull.get(one) - pull.get(other));
}
