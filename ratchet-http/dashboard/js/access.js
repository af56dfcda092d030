// What this dashboard may do, and buttons that say so.

import { h } from "./dom.js";
import { note } from "./notices.js";

const READ_ONLY = "This API only reads: the program that serves it installed no authorizer.";

let writes = true;
const watchers = new Set();

/** What the server says: whether anything may be changed at all. */
export function learn(may) {
  if (writes === may) return;
  writes = may;
  for (const watcher of watchers) watcher();
}

/** What an answer tells of it. */
export function learnFrom(problem) {
  if (problem?.code === "read_only") learn(false);
}

/** Whether nothing may be changed. */
export function readOnly() {
  return !writes;
}

/** Hears when that changes. Gives back what ends it. */
export function watchAccess(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/**
 * A button that changes something. Where nothing may be changed it stays reachable and says why.
 * `why` is another reason not to press it.
 */
export function action({ text, title, danger, primary, slim, why, label, name }, run) {
  const reason = readOnly() ? READ_ONLY : why;
  const button = h("button", {
    type: "button",
    class: ["button", danger && "danger", primary && "primary", slim && "slim"].filter(Boolean).join(" "),
    title: reason ?? title,
    "aria-label": label,
    "aria-disabled": reason ? "true" : null,
    "data-action": name,
    onclick: async () => {
      if (readOnly()) return note("Read-only", READ_ONLY);
      if (why) return note("Not now", why);
      if (button.getAttribute("aria-busy") === "true") return undefined;
      button.setAttribute("aria-busy", "true");
      try {
        return await run();
      } finally {
        button.removeAttribute("aria-busy");
      }
    },
  }, text);
  return button;
}

/** A line that says that nothing can be changed, where it is so. */
export function readOnlyMark() {
  return readOnly() ? h("span", { class: "badge plain tone-gone", title: READ_ONLY, "data-read-only": true }, "read-only") : null;
}
