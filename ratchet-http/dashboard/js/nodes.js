// Keeps the nodes as last read. Pages read them once, and again when the membership changes.

import { getAll } from "./api.js";
import { h, put } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

const AGAIN_MS = 5_000;

/** The nodes; null until they were read. */
let nodes = null;
let labels = new Map();
let reading = null;
let again = 0;
/** Ids without a known label, for which the nodes are read once more: the node may have joined after the last read. */
const asked = new Set();

/** Reads the nodes again. */
export function learnNodes() {
  reading ??= getAll("cluster/nodes", "nodes")
    .then((cluster) => knowNodes(cluster.nodes))
    .catch(() => {
      // Until the read succeeds, pages show ids. A page that needs the nodes shows the error.
      setTimeout(learnNodes, AGAIN_MS);
    })
    .finally(() => { reading = null; });
  return reading;
}

/** Stores the nodes that a page has read. */
export function knowNodes(read) {
  nodes = read;
  labels = new Map(nodes.map((node) => [node.id, node.label]));
  for (const link of document.querySelectorAll("a.node[data-node]")) name(link);
}

/** Writes the label of a node, or its id until the label is known. */
function name(link) {
  const { node, label = labels.get(node) } = link.dataset;
  if (!label && !asked.has(node)) {
    asked.add(node);
    again ||= setTimeout(() => { again = 0; learnNodes(); }, AGAIN_MS);
  }
  if (link.title && !label) return;
  link.title = `${label ?? "Node"}\n${node}`;
  if (link.textContent !== label) put(link, label ?? brief(node));
}

/** Returns the status of a node, or `silent` if its heartbeat is overdue. */
export function condition(node) {
  return !node.live && ["joining", "active", "draining"].includes(node.status) ? "silent" : node.status;
}

/** Returns whether a node is lost: it is dead or silent, but was not stopped. */
export function isLost(node) {
  return ["silent", "dead"].includes(condition(node));
}

/** Compares two nodes for sorting by urgency: silent, live, dead, left. */
export function byUrgency(one, other) {
  const rank = (node) => ({ silent: 0, dead: 2, left: 3 }[condition(node)] ?? 1);
  return rank(one) - rank(other) || one.label.localeCompare(other.label) || one.started_at.localeCompare(other.started_at);
}

/**
 * Returns the nodes that have not left, without dead nodes that another node with the same label replaced.
 * Null until the nodes were read.
 */
export function members() {
  if (!nodes) return null;
  const live = new Set(nodes.filter((node) => node.live).map((node) => node.label));
  return nodes.filter((node) => node.status !== "left" && !(node.status === "dead" && live.has(node.label)));
}

/** Returns the kinds that nodes have handlers for. */
export function knownKinds() {
  return (nodes ?? []).flatMap((node) => node.kinds ?? []);
}

/** Creates a link with the label of a node, and its id as a tooltip. An unknown label is filled in as soon as it is known. */
export function nodeName(id, label) {
  if (!id) return h("span", { class: "muted" }, "–");
  const link = h("a", { href: way(["cluster"]), class: "node", "data-node": id, "data-label": label });
  name(link);
  return link;
}
