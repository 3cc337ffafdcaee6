// Graphs over time, drawn as SVG at the size of their place, with a tooltip and a table for screen readers.
import { h, hideTooltip, showTooltip, svg } from "./dom.js";
import { clock, timeTicks } from "./format.js";

const LEFT = 44;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;
const SLANTED = "slanted-failures";

// A graph that redraws itself when its width changes. `draw(width)` returns the SVG.
class Graph {
  #draw = null;
  #observer;

  constructor() {
    this.element = h("div.graph");
    this.#observer = new ResizeObserver(() => this.#redraw());
    this.#observer.observe(this.element);
  }

  set(draw) {
    this.#draw = draw;
    this.#redraw();
  }

  close() {
    this.#observer.disconnect();
  }

  #redraw() {
    const width = Math.floor(this.element.clientWidth);
    if (this.#draw && width > 40) this.element.replaceChildren(this.#draw(width));
  }
}

export function graph() {
  return new Graph();
}

// Failures have slanted lines and an edge, so that they are seen without colour, too.
function slanted() {
  return svg(
    "pattern",
    { id: SLANTED, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect.slanted-ground", { width: 5, height: 5 }),
    svg("rect.slanted-line", { width: 1.2, height: 5 }),
  );
}

function niceMaximum(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((candidate) => candidate >= value);
}

// series: [{name, values, kind: "area" | "line" | "bars", colour: CSS class}]; values may be null where nothing is known.
export function timeGraph({ width, height = 170, first, step, series, maximum, format, label, last, left = LEFT, right = RIGHT, axis = true }) {
  const bins = series[0].values.length;
  const end = last ?? first + step * bins;
  const plotWidth = width - left - right;
  const plotHeight = height - TOP - (axis ? BOTTOM : 4);
  const top = maximum ?? niceMaximum(Math.max(...series.flatMap((one) => one.values.map((value) => value ?? 0))));
  const x = (at) => left + ((at - first) / Math.max(end - first, 1e-9)) * plotWidth;
  const y = (value) => TOP + plotHeight - (Math.min(value, top) / top) * plotHeight;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  if (series.some((one) => one.colour === "failures")) root.append(svg("defs", {}, slanted()));
  for (const part of axis ? [0, 0.5, 1] : [0, 1]) {
    const at = y(top * part);
    root.append(svg("line.grid", { x1: left, x2: width - right, y1: at, y2: at }));
    root.append(svg("text.tick", { x: left - 7, y: at + 4, "text-anchor": "end" }, format(top * part)));
  }
  for (const tick of axis ? timeTicks(first, end, Math.max(2, plotWidth / 75)) : []) {
    if (x(tick.at) < left + 14 || x(tick.at) > width - right - 14) continue;
    root.append(svg("text.tick", { x: x(tick.at), y: height - 5, "text-anchor": "middle" }, tick.label));
  }
  for (const one of series) root.append(...shapes(one, { first, step, end, x, y, bottom: TOP + plotHeight }));
  const cursor = svg("line.cursor", { y1: TOP, y2: TOP + plotHeight, visibility: "hidden" });
  root.append(cursor);
  root.addEventListener("pointermove", (event) => {
    const place = event.clientX - root.getBoundingClientRect().left;
    const bin = Math.floor(((place - left) / plotWidth) * (end - first) / step);
    if (bin < 0 || bin >= bins) return leave();
    const middle = x(Math.min(first + (bin + 0.5) * step, end));
    cursor.setAttribute("x1", middle);
    cursor.setAttribute("x2", middle);
    cursor.setAttribute("visibility", "visible");
    const lines = series.map((one) => `${one.name} ${one.values[bin] === null ? "–" : format(one.values[bin])}`);
    showTooltip(event.clientX, event.clientY, clock(first + bin * step, end), ...lines);
  });
  function leave() {
    cursor.setAttribute("visibility", "hidden");
    hideTooltip();
  }
  root.addEventListener("pointerleave", leave);
  return root;
}

function shapes({ values, kind, colour }, { first, step, end, x, y, bottom }) {
  if (kind === "bars") {
    const gap = x(first + step) - x(first) > 4 ? 1 : 0;
    return values.map((value, bin) => {
      if (!value) return "";
      const left = x(first + bin * step);
      const width = Math.max(1, x(Math.min(first + (bin + 1) * step, end)) - left - gap);
      const fill = colour === "failures" ? `url(#${SLANTED})` : null;
      return svg(`rect.${colour}`, { fill, x: left, y: y(value), width, height: Math.max(0.75, bottom - y(value)) });
    });
  }
  const points = [];
  values.forEach((value, bin) => {
    if (value === null) return;
    points.push([x(first + bin * step), y(value)], [x(Math.min(first + (bin + 1) * step, end)), y(value)]);
  });
  if (!points.length) return [];
  const line = "M" + points.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`).join("L");
  const stroke = svg(`path.line.${colour}`, { d: line });
  if (kind === "line") return [stroke];
  const area = `${line}L${points.at(-1)[0].toFixed(1)},${bottom}L${points[0][0].toFixed(1)},${bottom}Z`;
  return [svg(`path.area.${colour}`, { d: area }), stroke];
}

// A bar with a part for each state, and what it says for screen readers.
export function stateBar(counts, size = "") {
  const total = counts.reduce((all, [, number]) => all + number, 0);
  const bar = h("div.state-bar", {
    role: "img",
    "data-size": size,
    "aria-label": counts.map(([state, number]) => `${number} ${state}`).join(", ") || "no jobs",
  });
  for (const [state, number] of counts) {
    const part = h("span", { "data-state": state, title: `${number} ${state}` });
    part.style.flexGrow = String(number / Math.max(total, 1));
    bar.append(part);
  }
  return bar;
}

// A horizontal meter from 0 to 1.
export function meter(part, label) {
  const fill = h("span");
  fill.style.width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return h("span.meter", { role: "img", "aria-label": label, title: label }, fill);
}
