// Times are told by the server's clock: the last `at` it sent, carried on by a monotonic timer.

import { h } from "./dom.js";
import { absolute, relative } from "./format.js";

let base = null;

/** What the server says the time is, as an RFC 3339 text. */
export function heard(at) {
  const millis = Date.parse(at);
  if (Number.isFinite(millis)) base = millis - performance.now();
}

/** The `Date` header of an answer, used until something more exact is heard. */
export function heardRoughly(date) {
  if (base === null && date) heard(date);
}

/** Now, in milliseconds since 1970, as the server would say. */
export function now() {
  return base === null ? Date.now() : base + performance.now();
}

/** An element that says how long ago or how soon `at` is, and keeps saying it. */
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
