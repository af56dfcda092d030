// Short notices at the corner: what was done, and what could not be.

import { h } from "./dom.js";

const LIFE_MS = 6_000;
const MOST = 4;

/** Says that something was done. */
export function done(title, detail) {
  show("good", title, detail, "status");
}

/** Says how something is. */
export function note(title, detail) {
  show("calm", title, detail, "status");
}

/** Says that something failed; stays until it is closed. */
export function failed(title, error) {
  const what = [error?.title, error?.detail].filter(Boolean).join(": ") || String(error?.message ?? error);
  const later = error?.retryAfter ? `Try again in ${error.retryAfter} s.` : null;
  show("bad", title, [what, error?.code && `[${error.code}]`, later].filter(Boolean).join(" "), "alert");
}

function show(tone, title, detail, role) {
  const corner = document.getElementById("notices");
  const notice = h("div", { class: `notice ${tone}`, role },
    h("div", null, h("div", { class: "title" }, title), detail && h("div", { class: "small muted" }, detail)),
    h("button", { class: "close", type: "button", "aria-label": "Close the notice", onclick: () => notice.remove() }, "×"));
  corner.append(notice);
  while (corner.children.length > MOST) corner.firstElementChild.remove();
  if (tone !== "bad") setTimeout(() => notice.remove(), LIFE_MS);
}
