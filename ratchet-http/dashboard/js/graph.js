// The graph of a workflow. Parents are to the left of their children.

import { meaning, tone } from "./badges.js";
import { h, quoted, s } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

const WIDE = 164;
const TALL = 46;
const GAP_X = 52;
const GAP_X_WORDS = 118;
const GAP_Y = 16;
const SWEEPS = 4;
const LETTERS = 20;
const STATE_LETTERS = 25;
/** The minimum number of similar nodes that are drawn as one. */
const LEAST_FOLDED = 6;
/** States by urgency. A group of nodes has the colour of the most urgent state in it. */
const URGENCY = ["failed", "running", "paused", "pending", "blocked", "cancelled", "succeeded"];

const CONDITIONS = {
  succeeded: () => "",
  failed: () => "if it failed",
  ended: () => "however it ends",
  result_is: (pointer) => `by its result ${pointer}`,
  failures_reach: (count) => `${count} failures`,
  succeeded_at_least: (percent) => `≥ ${percent} % succeeded`,
};

/**
 * Draws the graph. Every job is a link; `self` is the id of the page's job. Many similar nodes are drawn as
 * one group, which calls `unfold(ids)` when opened. Nodes in `unfolded` are drawn one by one.
 */
export function graph({ nodes, edges, truncated }, self, unfolded, unfold) {
  const known = new Set(nodes.map((node) => node.id));
  const links = edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const drawn = fold(nodes, links, new Set([self, ...unfolded]));
  const { places, bends } = layout(drawn.nodes, drawn.links);
  const across = Math.max(...drawn.nodes.map((node) => places.get(node.id).x)) + WIDE + 4;
  const down = Math.max(...drawn.nodes.map((node) => places.get(node.id).y)) + TALL + 4;
  const drawing = s("svg", {
    width: across, height: down, viewBox: `-2 -2 ${across} ${down}`, role: "group",
    "aria-label": `Workflow of ${nodes.length} jobs and batches with ${links.length} links`,
  }, drawn.links.map((edge) => link(edge, { places, bends })),
  drawn.nodes.map((node) => (node.members
    ? heap(node, places.get(node.id), truncated, unfold)
    : box(node, places.get(node.id), node.id === self))));
  return h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Workflow graph" }, drawing);
}

/** Replaces similar nodes by one node with `members`, and merges their links. */
function fold(nodes, links, apart) {
  const colours = alike(nodes, links, apart);
  const first = new Map();
  const groups = new Map();
  for (const node of nodes) {
    const colour = colours.get(node.id);
    if (!first.has(colour)) first.set(colour, node.id);
    groups.set(first.get(colour), [...(groups.get(first.get(colour)) ?? []), node]);
  }
  const of = (id) => first.get(colours.get(id));
  const folded = new Map();
  for (const edge of links) {
    const [from, to] = [of(edge.from), of(edge.to)];
    const key = JSON.stringify([from, to, edge.condition]);
    const known = folded.get(key);
    const state = ["open", "unmet", "met"].find((one) => one === edge.state || one === known?.state);
    folded.set(key, { from, to, condition: edge.condition, state: state ?? edge.state });
  }
  return {
    nodes: [...groups.values()].map((members) => (members.length > 1 ? { ...members[0], members } : members[0])),
    links: [...folded.values()],
  };
}

/**
 * Assigns a colour to each node. Nodes of the same colour have the same kind, and have links with the same
 * conditions to nodes of the same colours. A colour is used for one node, or for at least LEAST_FOLDED nodes.
 */
function alike(nodes, links, apart) {
  const beside = new Map(nodes.map((node) => [node.id, []]));
  for (const { from, to, condition } of links) {
    beside.get(from).push({ id: to, how: `to ${condition}` });
    beside.get(to).push({ id: from, how: `from ${condition}` });
  }
  let colours = new Map(nodes.map((node) => [node.id, apart.has(node.id) ? node.id : JSON.stringify([node.type, node.kind])]));
  const many = () => new Set(colours.values()).size;
  for (;;) {
    for (let before = 0; before < many();) {
      before = many();
      const numbers = new Map();
      colours = new Map(nodes.map(({ id }) => {
        const around = beside.get(id).map((one) => JSON.stringify([one.how, colours.get(one.id)]));
        const sign = JSON.stringify([colours.get(id), [...new Set(around)].sort()]);
        if (!numbers.has(sign)) numbers.set(sign, numbers.size);
        return [id, numbers.get(sign)];
      }));
    }
    const sizes = new Map();
    for (const colour of colours.values()) sizes.set(colour, (sizes.get(colour) ?? 0) + 1);
    const few = nodes.filter(({ id }) => sizes.get(colours.get(id)) > 1 && sizes.get(colours.get(id)) < LEAST_FOLDED);
    if (few.length === 0) return colours;
    for (const { id } of few) colours.set(id, id);
  }
}

/** Draws a group of similar nodes as one box. */
function heap({ kind, type, members }, { x, y }, truncated, unfold) {
  const name = kind ?? (type === "batch" ? "batch" : "purged job");
  const many = `${members.length}${truncated ? "+" : ""} ×`;
  const counts = URGENCY.map((state) => [members.filter((node) => node.state === state).length, state]).filter(([count]) => count > 0);
  const states = counts.map(([count, state]) => `${count} ${state}`).join(", ");
  const run = () => unfold(members.map((node) => node.id));
  return s("g", {
    transform: `translate(${x} ${y})`, class: "heap", role: "button", tabindex: "0",
    "aria-label": `${many} ${quoted(name)}: ${states}. Shows them one by one`,
    onclick: run,
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      run();
    },
  },
  s("title", null, `${many} ${quoted(name)}: ${states}\nShows them one by one`),
  s("rect", { class: "behind", x: 4, y: 4, width: WIDE, height: TALL, rx: 6 }),
  s("rect", { class: "box", width: WIDE, height: TALL, rx: 6 }),
  s("rect", { class: `stripe-${tone(counts[0]?.[1])}`, x: 7, y: 8, width: 4, height: TALL - 16, rx: 2 }),
  s("text", { class: "kind", x: 20, y: 20 }, cut(`${many} ${quoted(name)}`, LETTERS)),
  s("text", { class: "state", x: 20, y: 36 }, cut(states, STATE_LETTERS)));
}

function box(node, { x, y }, isSelf) {
  const batch = node.type === "batch";
  const name = node.kind ?? (batch ? "batch" : "purged job");
  const state = batch ? brief(node.id) : (node.state ?? "no longer stored");
  const shape = s("g", { transform: `translate(${x} ${y})`, class: isSelf ? "this" : null },
    s("title", null, `${quoted(name)}, ${state}${node.state ? `: ${meaning(node.state)}` : ""}\n${node.id}`),
    s("rect", { class: "box", width: WIDE, height: TALL, rx: batch ? 14 : 6 }),
    s("rect", { class: `stripe-${tone(node.state)}`, x: 7, y: 8, width: 4, height: TALL - 16, rx: 2 }),
    s("text", { class: "kind", x: 20, y: 20 }, cut(name, LETTERS)),
    s("text", { class: "state", x: 20, y: 36 }, `${state}${isSelf ? " · this job" : ""}`));
  if (!batch && node.kind === null) return shape;
  return s("a", { href: batch ? way(["jobs"], { batch: node.id }) : way(["jobs", node.id]), "aria-label": `${quoted(name)}, ${state}` }, shape);
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
    s("title", null, `runs ${label || "if it succeeded"}: ${{ open: "not decided yet", met: "met", unmet: "cannot be met" }[edge.state] ?? edge.state}`),
    s("path", { class: `edge ${look}`, d: curve(stops) }),
    s("path", { class: `head ${look}`, d: `M${end.x + 6} ${end.y}l-7 -4v8z` }),
    label && s("text", { class: "condition", x: (before.x + end.x) / 2, y: (before.y + end.y) / 2 - 4, "text-anchor": "middle" }, cut(label, 20)));
}

/** Returns the condition of a link in words, or an empty text for the usual condition, success. */
function words(edge) {
  const [word, rest] = String(edge.condition).split(/ (.*)/s);
  return CONDITIONS[word]?.(rest ?? "") ?? String(edge.condition);
}

/** Returns the path of a link: curves in the gaps between columns, straight lines along columns. */
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
 * Lays out the graph. The column of a node is the length of the longest path to it. The order in a column
 * keeps crossings low. A link that spans several columns gets a place in each column between, so that it
 * crosses no box.
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

/** Computes positions. Bends take less space than boxes, and gaps without labels less than gaps with them. */
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

/** Returns the length of the longest path to each node. A node without parents is moved next to its nearest child. */
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
