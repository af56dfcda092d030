// The server's clock: the last time `at` that the server sent, plus the time since then by a monotonic
// timer.

import { h } from "./dom.js";
import { absolute, relative } from "./format.js";

let base = null;

/** Stores the server's time, from an RFC 3339 text. */
export function heard(at) {
  const millis = Date.parse(at);
  if (Number.isFinite(millis)) base = millis - performance.now();
}

/** Stores the time from the `Date` header of a response, until a more exact time is known. */
export function heardRoughly(date) {
  if (base === null && date) heard(date);
}

/** Returns the present time by the server's clock, in milliseconds since 1970. */
export function now() {
  return base === null ? Date.now() : base + performance.now();
}

/** Creates an element that shows how long ago or how soon `at` is, and keeps it up to date. */
export function time(at, missing = "–") {
  if (!at) return h("span", { class: "muted" }, missing);
  const element = h("time", { datetime: at, title: absolute(at), class: "nowrap" });
  element.textContent = relative(at, now());
  return element;
}

function tick() {
  const moment = now();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const text = relative(element.dateTime, moment);
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(tick, 1000);
