// Short notices in the corner, about actions that succeeded or failed.

import { h } from "./dom.js";

const LIFE_MS = 6_000;
const MOST = 4;

/** Shows that an action succeeded. */
export function done(title, detail) {
  show("good", title, detail, "status");
}

/** Shows information. */
export function note(title, detail) {
  show("calm", title, detail, "status");
}

/** Shows that something failed, until the user closes the notice. */
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
