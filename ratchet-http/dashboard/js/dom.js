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
