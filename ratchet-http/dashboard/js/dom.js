// Elements are made here. Text goes in as text; there is no way to give markup.

const SVG = "http://www.w3.org/2000/svg";
/** Characters of scripts that run from right to left, and those that turn the direction of what follows. */
const TURNS = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** An HTML element. Children are nodes, texts, numbers, nothing, or lists of them. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** An SVG element. */
export function s(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

/** Replaces what an element holds. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** As `put`, and the focus stays with the button of the same `data-action`, or with the first of its kind. */
export function redraw(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  put(element, ...children);
  if (!focused || focused === element || focused.isConnected) return element;
  const same = focused.dataset?.action && element.querySelector(`[data-action="${CSS.escape(focused.dataset.action)}"]`);
  (same || element.querySelector(focused.localName))?.focus({ preventScroll: true });
  return element;
}

/** Gives the elements in `element` the looks and the content of others, one by one: they stay the same to whoever is at them. */
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
 * A text from a job inside a sentence, a title or a label: isolated, so it turns nothing around it. What
 * is a child of its own needs no such thing: `h` isolates it.
 */
export function quoted(text) {
  return TURNS.test(text) ? `\u2068${String(text).replace(CONTROLS, "\ufffd")}\u2069` : text;
}

/** JSON in which the characters that turn the direction of writing are escaped. */
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
    // Only ways inside the dashboard and its API: what a job says never becomes an address.
    throw new TypeError("a link leads inside");
  } else if (name === "style" || name === "srcdoc" || name === "src") {
    throw new TypeError(`${name} is not set`);
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

/** A text in an element of its own if it could change the direction of what stands beside it. */
function isolated(parent, text) {
  return parent instanceof HTMLElement && parent.localName !== "bdi" && TURNS.test(text) ? h("bdi", null, text) : text;
}

/** Whether the person is typing, so that single keys are letters. */
export function typing(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;
}
