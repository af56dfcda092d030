// Keyboard shortcuts. The key `?` lists all of them.

import { h, typing } from "./dom.js";
import { inform } from "./dialog.js";
import { go, way } from "./router.js";

const PLACES = { o: "overview", j: "jobs", q: "queues", r: "recurring", b: "batches", c: "cluster" };
const PREFIX_MS = 1_500;

const LIST = [
  ["g o", "go to the overview"],
  ["g j", "go to the jobs"],
  ["g q", "go to the queues"],
  ["g r", "go to the recurring jobs"],
  ["g b", "go to the batches"],
  ["g c", "go to the cluster"],
  ["/", "filter the jobs"],
  ["j  k", "down and up in a table"],
  ["x", "choose the row"],
  ["Enter", "open the row"],
  ["[  ]", "previous and next page"],
  ["r", "read the page again"],
  ["t", "light or dark"],
  ["?", "this list"],
  ["Esc", "close a dialog"],
];

/** Handles keys. `page()` returns the present page, `theme()` changes the theme. */
export function keys({ page, theme, refresh }) {
  let prefix = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const second = performance.now() - prefix < PREFIX_MS;
    prefix = -Infinity;
    if (second && PLACES[event.key]) {
      event.preventDefault();
      go(way([PLACES[event.key]]));
      return;
    }
    const act = {
      g: () => { prefix = performance.now(); },
      "?": list,
      t: theme,
      r: refresh,
      "/": () => page()?.search?.() ?? go(way(["jobs"])),
      j: () => walk(1),
      k: () => walk(-1),
      x: () => row()?.querySelector("input[type=checkbox]")?.click(),
      Enter: () => { if (!event.target.closest("a, button, input, summary")) row()?.querySelector("a")?.click(); },
      "[": () => page()?.back?.(),
      "]": () => page()?.on?.(),
    }[event.key];
    if (!act) return;
    if (event.key !== "Enter") event.preventDefault();
    act();
  });
}

/** Shows the list of keys. */
export function list() {
  inform("Keys", h("dl", { class: "keys" }, LIST.map(([key, what]) => [
    h("dt", null, key.split(/\s+/).map((one, at) => [at > 0 && " ", h("kbd", { class: "kbd" }, one)])),
    h("dd", null, what),
  ])));
}

function rows() {
  return [...document.querySelectorAll("main table tbody tr")];
}

function row() {
  return document.querySelector("main tr.here");
}

function walk(step) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.indexOf(row());
  const next = all[now === -1 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, now + step))];
  row()?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a") ?? next.querySelector("input, button"))?.focus({ preventScroll: true });
}
