// The parts that pages share: a head, a loading line, an error with a button to retry.

import { h } from "./dom.js";
import { readOnlyMark } from "./access.js";
import { icon } from "./icons.js";

/** Creates the head of a page. */
export function head(title, { sub, mark = true } = {}, ...tools) {
  return h("div", { class: "head" },
    h("h1", { tabindex: "-1" }, title),
    sub && h("span", { class: "sub" }, sub),
    mark && readOnlyMark(),
    h("span", { class: "spring" }),
    tools);
}

/** Creates a panel with a heading. */
export function panel(title, tools, ...content) {
  return h("section", { class: "panel" },
    h("div", { class: "top" }, h("h2", null, title), h("span", { class: "spring" }), tools),
    h("div", { class: "content" }, content));
}

/** Creates a panel around a table. */
export function tablePanel(title, tools, table) {
  return h("section", { class: title ? "panel flush" : "panel flush bare" },
    title && h("div", { class: "top" }, h("h2", null, title), h("span", { class: "spring" }), tools),
    h("div", { class: "content" }, table));
}

/** Creates an error message, shown in place of the content. */
export function trouble(what, error, again) {
  const code = [error.status || null, error.code].filter(Boolean).join(" ");
  return h("div", { class: "alert bad", role: "alert" }, icon("warn"),
    h("div", null,
      h("div", { class: "title" }, `${what}: ${error.title ?? error.message}`),
      error.detail && h("div", { class: "detail" }, error.detail),
      code && h("div", { class: "small" }, code)),
    again && h("button", { class: "button slim", type: "button", onclick: again }, "Try again"));
}

/** Creates a warning. */
export function warning(title, ...detail) {
  return h("div", { class: "alert warn", role: "status" }, icon("warn"),
    h("div", null, h("div", { class: "title" }, title), h("div", { class: "detail" }, detail)));
}

/** Creates a line that is shown while the content loads. */
export function loading(what) {
  return h("div", { class: "loading", role: "status" }, `${what} …`);
}

/** Creates a bar that is filled to a percentage. */
export function progressBar(percent, label) {
  return h("div", { class: "progress", role: "progressbar", "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": label },
    h("div", { class: "meter" }, h("i", { css: { width: `${percent}%` } })),
    h("span", { class: "small nowrap" }, `${percent} %`));
}

/** Creates a list of names and values. Entries without a value are left out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
    .map(([name, value, title]) => [h("dt", { title }, name), h("dd", null, value)]));
}
