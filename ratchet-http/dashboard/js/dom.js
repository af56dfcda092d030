// Creates elements. Text is always inserted as text; there is no way to insert markup.

const SVG = "http://www.w3.org/2000/svg";
/** Characters of right-to-left scripts, and characters that change the direction of text. */
const TURNS = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** Creates an HTML element. A child is a node, a text, a number, null, or a list of these. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** Creates an SVG element. */
export function s(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

/** Replaces the children of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Like `put`, but restores the focus: on the button with the same `data-action`, or else on the first button. */
export function redraw(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  put(element, ...children);
  if (!focused || focused === element || focused.isConnected) return element;
  const same = focused.dataset?.action && element.querySelector(`[data-action="${CSS.escape(focused.dataset.action)}"]`);
  (same || element.querySelector(focused.localName))?.focus({ preventScroll: true });
  return element;
}

/** Updates the children of `element` in place from other elements, one by one, so that focus and selection stay. */
export function renew(element, others) {
  if (element.children.length !== others.length) return put(element, others);
  others.forEach((other, at) => {
    const one = element.children[at];
    if (one.isEqualNode(other)) return;
    for (const name of ["class", "title", "href"]) {
      if (other.hasAttribute(name)) one.setAttribute(name, other.getAttribute(name));
      else one.removeAttribute(name);
    }
    one.replaceChildren(...other.childNodes);
  });
  return element;
}

/**
 * Isolates a text from a job for use inside a sentence, a title or a label, so that it cannot change the
 * direction of the text around it. A text that is a child of an element is isolated by `h`.
 */
export function quoted(text) {
  return TURNS.test(text) ? `\u2068${String(text).replace(CONTROLS, "\ufffd")}\u2069` : text;
}

/** Escapes the characters in JSON that change the direction of text. */
export function unturned(json) {
  return json.replace(CONTROLS, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    set(element, name, value);
  }
  add(element, children);
  return element;
}

function set(element, name, value) {
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new TypeError(`${name} is not a function`);
    element.addEventListener(name.slice(2), value);
  } else if (name === "css") {
    for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  } else if (name === "href" && !/^[#.]/.test(value)) {
    // Links may lead only into the dashboard and its API, so that text of a job never becomes a URL.
    throw new TypeError(`the link ${value} leads out of the dashboard and its API`);
  } else if (name === "style" || name === "srcdoc" || name === "src") {
    throw new TypeError(`the attribute ${name} is not allowed`);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : isolated(element, String(child)));
  }
}

/** Wraps a text in an element if it could change the direction of the text beside it. */
function isolated(parent, text) {
  return parent instanceof HTMLElement && parent.localName !== "bdi" && TURNS.test(text) ? h("bdi", null, text) : text;
}

/** Returns whether the user is typing text there, so that single keys must not act as shortcuts. */
export function typing(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;
}
