// Whether this dashboard may write, and buttons that show it.

import { h } from "./dom.js";
import { note } from "./notices.js";

const READ_ONLY = "This API refuses writes: it was built as read-only or without an authorizer.";

let writes = true;
const watchers = new Set();

/** Stores whether the server accepts writes, from its status. */
export function learn(may) {
  if (writes === may) return;
  writes = may;
  for (const watcher of watchers) watcher();
}

/** Stores that the server refuses writes, if this is the reason of an error. */
export function learnFrom(problem) {
  if (problem?.code === "read_only") learn(false);
}

/** Returns whether writes are refused. */
export function readOnly() {
  return !writes;
}

/** Calls the listener when writes begin or cease to be refused. Returns a function that removes it. */
export function watchAccess(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/**
 * Creates a button for a write. If writes are refused, the button stays focusable and shows the reason.
 * `why` is another reason for which the button is disabled.
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

/** Creates the badge `read-only` if writes are refused; otherwise returns null. */
export function readOnlyMark() {
  return readOnly() ? h("span", { class: "badge plain tone-gone", title: READ_ONLY, "data-read-only": true }, "read-only") : null;
}
