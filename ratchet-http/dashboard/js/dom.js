// Elements are made here. Text goes in as text; there is no way to give markup.

const SVG = "http://www.w3.org/2000/svg";

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
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Whether the person is typing, so that single keys are letters. */
export function typing(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;
}
