// The graph of a workflow: what came before stands left of what follows it.

import { meaning, tone } from "./badges.js";
import { h, s } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

const WIDE = 172;
const TALL = 46;
const GAP_X = 76;
const GAP_Y = 16;
const SWEEPS = 4;
const LETTERS = 22;

const CONDITIONS = {
  succeeded: "", failed: "if it failed", ended: "however it ends", result_is: "by its result",
  failures_reach: "failures reach", succeeded_at_least: "succeeded at least",
};

/** The graph as a drawing in which every job is a link; `self` is the one the page is about. */
export function graph({ nodes, edges }, self) {
  const places = layout(nodes, edges);
  const across = Math.max(...nodes.map((node) => places.get(node.id).x)) + WIDE + 4;
  const down = Math.max(...nodes.map((node) => places.get(node.id).y)) + TALL + 4;
  const drawing = s("svg", {
    width: across, height: down, viewBox: `-2 -2 ${across} ${down}`, role: "group",
    "aria-label": `Workflow of ${nodes.length} jobs and batches with ${edges.length} links`,
  }, edges.filter((edge) => places.has(edge.from) && places.has(edge.to)).map((edge) => link(edge, places)),
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
    s("text", { class: "kind", x: 20, y: 20 }, name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name),
    s("text", { class: "state", x: 20, y: 36 }, `${state}${isSelf ? " · this job" : ""}`));
  if (!batch && node.kind === null) return shape;
  return s("a", { href: batch ? way(["jobs"], { batch: node.id }) : way(["jobs", node.id]), "aria-label": `${name}, ${state}` }, shape);
}

function link(edge, places) {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  const start = { x: from.x + WIDE, y: from.y + TALL / 2 };
  const end = { x: to.x - 7, y: to.y + TALL / 2 };
  const bend = Math.max(28, (end.x - start.x) / 2);
  const look = { open: "waiting", unmet: "broken" }[edge.state] ?? "met";
  const [word, rest] = String(edge.condition).split(/ (.*)/s);
  const condition = CONDITIONS[word] ?? word;
  const label = [condition, rest].filter(Boolean).join(" ");
  return s("g", null,
    s("title", null, `runs ${label || "if it succeeded"}: ${{ open: "not decided yet", met: "met", unmet: "not met" }[edge.state] ?? edge.state}`),
    s("path", { class: `edge ${look}`, d: `M${start.x} ${start.y}C${start.x + bend} ${start.y} ${end.x - bend} ${end.y} ${end.x} ${end.y}` }),
    s("path", { class: `head ${look}`, d: `M${end.x + 6} ${end.y}l-7 -4v8z` }),
    label && s("text", { class: "condition", x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 - 5, "text-anchor": "middle" }, label));
}

/** Columns by the longest way to a node; in each column the order with the least crossing, nearly. */
function layout(nodes, edges) {
  const parents = new Map(nodes.map((node) => [node.id, []]));
  const children = new Map(nodes.map((node) => [node.id, []]));
  for (const { from, to } of edges) {
    if (!parents.has(from) || !parents.has(to)) continue;
    parents.get(to).push(from);
    children.get(from).push(to);
  }
  const column = ranks(nodes, parents, children);
  const columns = [];
  for (const node of nodes) (columns[column.get(node.id)] ??= []).push(node.id);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const on = sweep % 2 === 0;
    const order = on ? columns : [...columns].reverse();
    for (const ids of order) sortByNeighbours(ids, on ? parents : children, columns);
  }
  const tallest = Math.max(...columns.map((ids) => ids.length));
  const places = new Map();
  columns.forEach((ids, at) => ids.forEach((id, row) => {
    const free = ((tallest - ids.length) * (TALL + GAP_Y)) / 2;
    places.set(id, { x: at * (WIDE + GAP_X), y: free + row * (TALL + GAP_Y) });
  }));
  return places;
}

function ranks(nodes, parents, children) {
  const rank = new Map(nodes.map((node) => [node.id, 0]));
  const left = new Map(nodes.map((node) => [node.id, parents.get(node.id).length]));
  const ready = nodes.map((node) => node.id).filter((id) => left.get(id) === 0);
  for (let at = 0; at < ready.length; at += 1) {
    for (const child of children.get(ready[at])) {
      rank.set(child, Math.max(rank.get(child), rank.get(ready[at]) + 1));
      left.set(child, left.get(child) - 1);
      if (left.get(child) === 0) ready.push(child);
    }
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
