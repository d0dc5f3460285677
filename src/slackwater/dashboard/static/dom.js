// Elements from plain values. Text goes in as text, always: names of queries are whatever somebody typed.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick`) and children: elements, strings, numbers; null is left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Sets text only where it differs: what does not change is not laid out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** A link target from outside: only what leads to a web page. */
export function webAddress(given) {
  return typeof given === "string" && /^https?:\/\//i.test(given) ? given : null;
}

let vanishing;
export function toast(text, kind = "done") {
  const place = byId("toast");
  place.textContent = text;
  place.dataset.kind = kind;
  place.hidden = false;
  clearTimeout(vanishing);
  vanishing = setTimeout(() => { place.hidden = true; }, 6000);
}
