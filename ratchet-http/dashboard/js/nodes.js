// The labels of nodes, read once and again when the membership changes.

import { get } from "./api.js";
import { h } from "./dom.js";
import { brief } from "./format.js";
import { way } from "./router.js";

let labels = new Map();
let reading = null;

/** Reads them again. */
export function learnNodes() {
  reading ??= get("cluster/nodes")
    .then((cluster) => knowNodes(cluster.nodes))
    .catch(() => {
      // Ids are shown then; the page that needs the nodes says what is wrong.
    })
    .finally(() => { reading = null; });
  return reading;
}

/** What another page has read. */
export function knowNodes(nodes) {
  labels = new Map(nodes.map((node) => [node.id, node.label]));
}

/** A node by its label, with its id for who looks closer. */
export function nodeName(id) {
  if (!id) return h("span", { class: "muted" }, "–");
  return h("a", { href: way(["cluster"]), title: `Node ${id}`, class: "nowrap" }, labels.get(id) ?? brief(id));
}
