// The nodes as they were last read: once, and again when the membership changes.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

const AGAIN_MS = 5_000;

/** Null until they were read. */
let nodes = null;
let labels = new Map();
let reading = null;
let again = 0;
/** The nodes without a known label that were asked for once more: one may be newer than what was read. */
const asked = new Set();

/** Reads them again. */
export function learnNodes() {
  reading ??= get("cluster/nodes")
    .then((cluster) => knowNodes(cluster.nodes))
    .catch(() => {
      // Ids are shown until they can be read; the page that needs the nodes says what is wrong.
      setTimeout(learnNodes, AGAIN_MS);
    })
    .finally(() => { reading = null; });
  return reading;
}

/** Takes in what another page has read. */
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

/** What is to be said of a node: its status, or that it should have been heard of by now. */
export function condition(node) {
  return !node.live && ["joining", "active", "draining"].includes(node.status) ? "silent" : node.status;
}

/** Whether a node is lost: nobody stopped it, and it is not heard of. */
export function isLost(node) {
  return ["silent", "dead"].includes(condition(node));
}

/** Orders nodes by what needs a person first: the silent, the live, the dead, those that left. */
export function byUrgency(one, other) {
  const rank = (node) => ({ silent: 0, dead: 2, left: 3 }[condition(node)] ?? 1);
  return rank(one) - rank(other) || one.label.localeCompare(other.label) || one.started_at.localeCompare(other.started_at);
}

/**
 * The nodes that did not leave in order, without the dead whose place another one of their label took. Null
 * until they were read.
 */
export function members() {
  if (!nodes) return null;
  const live = new Set(nodes.filter((node) => node.live).map((node) => node.label));
  return nodes.filter((node) => node.status !== "left" && !(node.status === "dead" && live.has(node.label)));
}

/** The kinds that nodes have handlers for. */
export function knownKinds() {
  return (nodes ?? []).flatMap((node) => node.kinds ?? []);
}

/** A node by its label, with its id under the pointer. A label that is not given is written once it is known. */
export function nodeName(id, label) {
  if (!id) return h("span", { class: "muted" }, "–");
  const link = h("a", { href: way(["cluster"]), class: "node", "data-node": id, "data-label": label });
  name(link);
  return link;
}
