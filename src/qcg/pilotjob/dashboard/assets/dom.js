// Elements made without markup: every text becomes a text node of printable characters.
import { printable, printableLines } from "./printable.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("links lead to views of this page only");
    else element.setAttribute(name, value === true ? "" : printable(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(printable(child)));
  }
}

// h("p.muted", {title: "why"}, "text", element): an element of HTML.
export function h(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  return fill(element, attributes, children);
}

// The same for SVG.
export function svg(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElementNS(SVG, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return fill(element, attributes, children);
}

// Output of programs: line breaks and tabs stay, everything else that is invisible is escaped.
export function outputText(text) {
  return document.createTextNode(printableLines(text));
}

const shown = new WeakMap();

// Builds the content of a container again when its value has changed. The focus stays where it was.
export function refresh(container, value, build) {
  const key = JSON.stringify(value);
  if (shown.get(container) === key) return;
  shown.set(container, key);
  const focusable = () => [...container.querySelectorAll("a[href], button, input, summary, [tabindex]")];
  const focused = focusable().indexOf(document.activeElement);
  const open = [...container.querySelectorAll("details")].map((details) => details.open);
  container.replaceChildren();
  append(container, [build(value)]);
  container.querySelectorAll("details").forEach((details, index) => {
    if (open[index]) details.open = true;
  });
  if (focused >= 0) focusable()[focused]?.focus({ preventScroll: true });
}

export function stateBadge(state) {
  return h("span.badge", { "data-state": state }, h("span.dot", { "aria-hidden": "true" }), state);
}

// A message at the edge of the page that screen readers say, and that leaves after a while.
export function say(sentence, kind = "info") {
  const place = document.getElementById("messages");
  const message = h("p.message", { "data-kind": kind }, sentence);
  place.append(message);
  setTimeout(() => message.remove(), kind === "error" ? 12000 : 6000);
}

const tip = () => document.getElementById("tooltip");

// Shows a tooltip near a place of the window, never outside of it.
export function showTooltip(x, y, ...lines) {
  const box = tip();
  box.replaceChildren();
  append(box, lines.map((line, index) => h(index ? "div.muted" : "div.first-line", {}, line)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
  box.style.left = Math.max(4, Math.min(left, innerWidth - width - 4)) + "px";
  box.style.top = Math.max(4, Math.min(y + 14, innerHeight - height - 4)) + "px";
}

export function hideTooltip() {
  tip().hidden = true;
}
