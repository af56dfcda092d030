// The side bar: links to the pages, the state of the connection, and the theme button.

import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { compact } from "./format.js";
import { way } from "./router.js";

const PLACES = [["overview", "Overview"], ["jobs", "Jobs"], ["queues", "Queues"], ["recurring", "Recurring"], ["batches", "Batches"], ["cluster", "Cluster"]];

/** Scrolls the link of the page into view, because on a phone the row of links is wider than the screen. */
function show(link) {
  const row = link?.closest("nav");
  if (!row) return;
  const [outer, inner] = [row.getBoundingClientRect(), link.getBoundingClientRect()];
  row.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}

/** Fills the side bar. `theme` and `help` are the handlers of its buttons. */
export function side(element, { theme, help }) {
  const links = new Map(PLACES.map(([name, text]) => [name, h("a", { href: way([name]), title: text }, icon(name), h("span", null, text))]));
  const tally = h("span", { class: "tally", hidden: true });
  links.get("jobs").append(tally);
  const lamp = h("div", { class: "link", role: "status", "data-state": "connecting" });
  const about = h("div", { class: "about" });
  put(element,
    h("a", { class: "brand", href: way(["overview"]) }, icon("brand"), "Ratchet"),
    h("nav", { class: "ways", "aria-label": "Pages" }, h("ul", null, [...links.values()].map((link) => h("li", null, link)))),
    h("div", { class: "foot" }, about, lamp, h("div", { class: "tools" },
      h("button", { class: "tool", type: "button", "aria-label": "Light or dark", title: "Light or dark (t)", onclick: theme }, icon("theme")),
      h("button", { class: "tool", type: "button", "aria-label": "Keys", title: "Keys (?)", onclick: help }, icon("help")))));
  return {
    /** Marks the link of the present page. */
    at(place) {
      for (const [name, link] of links) {
        if (name === place) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      show(links.get(place));
    },
    /** Shows the state of the connection. */
    connection(name) {
      if (lamp.dataset.state === name && lamp.firstChild) return;
      lamp.dataset.state = name;
      const text = { live: "live", connecting: "connecting", lost: "not connected", failing: "reads fail", old: "out of date" }[name];
      put(lamp, h("span", { class: "lamp", "aria-hidden": "true" }), h("span", null, text));
      lamp.title = text;
    },
    /** Shows the number of dead letters beside the link to the jobs. */
    failures(count) {
      tally.hidden = !(count > 0);
      const text = compact(count ?? 0);
      if (tally.textContent !== text) put(tally, text);
      tally.title = `${count} dead letters`;
    },
    /** Shows the node and the database that serve the page. */
    about(status) {
      const where = status.node ? [status.node.label, ` · ${status.role}`] : "no node of its own";
      put(about, h("div", null, where), h("div", null, `${status.backend} · ${status.version}`));
    },
  };
}
