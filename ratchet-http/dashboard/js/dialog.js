// Dialogs. `showModal` keeps the focus inside the dialog, and Escape closes it. Then the focus returns to
// the element that had it before.

import { h } from "./dom.js";

/** Asks for a confirmation, and returns whether the user confirms. `danger` makes the button red. */
export async function confirm(question) {
  return await ask(question) !== null;
}

/**
 * Asks for a confirmation and, if `label` is given, for a text of up to `most` characters. Returns the
 * text, which may be empty, or null if the user does not confirm.
 */
export function ask({ title, text, yes, danger = false, label, most }) {
  return new Promise((resolve) => {
    let answer = null;
    const input = label && h("input", { type: "text", maxlength: most });
    const dialog = open(title, [
      ...[text].flat().map((line) => h("p", null, line)),
      input && h("label", { class: "field" }, label, input),
      h("div", { class: "ends" },
        h("button", { class: "button", type: "button", autofocus: danger, onclick: () => dialog.close() }, "Leave it"),
        h("button", {
          class: `button primary${danger ? " danger" : ""}`, type: "button", autofocus: !danger, "data-yes": true,
          onclick: () => { answer = input?.value.trim() ?? ""; dialog.close(); },
        }, yes)),
    ], () => resolve(answer));
  });
}

/** Shows a dialog until the user closes it. */
export function inform(title, content) {
  const dialog = open(title, [content, h("div", { class: "ends" },
    h("button", { class: "button", type: "button", autofocus: true, onclick: () => dialog.close() }, "Close"))]);
}

let number = 0;

function open(title, content, closed) {
  const before = document.activeElement;
  number += 1;
  const id = `dialog-${number}`;
  const dialog = h("dialog", { "aria-labelledby": id, onclick: (event) => { if (event.target === dialog) dialog.close(); } },
    h("div", { class: "inside" }, h("h2", { id }, title), content));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
    closed?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
