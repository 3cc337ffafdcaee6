// Draws the timeline on a canvas: a row for each core or node, from bins, or from attempts where they are few.
import { printable } from "./printable.js";
import { timeTicks } from "./format.js";

export const AXIS = 26;
const SHADES = 12;
const HATCH = 6; // pixels between two slanted lines
const FEWEST_LETTERS = 12; // of a name that is cut: fewer say nothing

// Colours of the page as the canvas needs them: computed, in the current theme.
export function readColours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const computed = (value) => {
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const names = ["text", "muted", "line", "panel", "page", "hover", "accent", "edge"];
  const states = ["queued", "scheduled", "executing", "succeed", "failed", "canceled", "omitted"];
  const colours = Object.fromEntries([...names, ...states].map((name) => [name, computed(`var(--${name})`)]));
  colours.shades = Array.from({ length: SHADES + 1 }, (_, shade) =>
    computed(`color-mix(in srgb, var(--executing) ${Math.round(12 + (58 * shade) / SHADES)}%, var(--panel))`),
  );
  for (const [kind, part] of [["fill", 30], ["frame", 80]]) {
    colours[kind] = Object.fromEntries(
      states.map((state) => [state.toUpperCase(), computed(`color-mix(in srgb, var(--${state}) ${part}%, var(--panel))`)]),
    );
  }
  probe.remove();
  return colours;
}

export function gutterOf(width) {
  return width < 520 ? 68 : 116;
}

// What the drawing needs of the view: the window, rows, sizes and what is under the pointer.
export function drawTimeline(canvas, view, colours) {
  const ratio = devicePixelRatio || 1;
  const { width, height } = view;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const font = getComputedStyle(canvas).fontFamily;
  const gutter = gutterOf(width);
  const x = (at) => gutter + ((at - view.first) / (view.last - view.first)) * (width - gutter);
  pen.save();
  pen.beginPath();
  pen.rect(gutter, 0, width - gutter, height);
  pen.clip();
  drawGrid(pen, view, colours, x, font, gutter);
  pen.beginPath();
  pen.rect(gutter, AXIS, width - gutter, height - AXIS);
  pen.clip();
  for (const row of view.rows) drawRow(pen, row, view, colours, x, font);
  if (view.now !== null && view.now >= view.first && view.now <= view.last) {
    pen.fillStyle = colours.accent;
    pen.fillRect(x(view.now), AXIS, 1.5, height - AXIS);
  }
  pen.restore();
  drawLabels(pen, view, colours, font, gutter);
  drawSeparators(pen, view, colours);
  if (view.range) {
    pen.fillStyle = colours.accent;
    pen.globalAlpha = 0.15;
    pen.fillRect(Math.min(...view.range), AXIS, Math.abs(view.range[1] - view.range[0]), height - AXIS);
    pen.globalAlpha = 1;
  }
}

function drawGrid(pen, view, colours, x, font, gutter) {
  pen.font = `12px ${font}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  for (const tick of timeTicks(view.first, view.last, (view.width - gutter) / 95)) {
    pen.fillStyle = colours.line;
    pen.fillRect(Math.round(x(tick.at)), AXIS - 4, 1, view.height);
    pen.fillStyle = colours.muted;
    if (x(tick.at) > gutter + 22 && x(tick.at) < view.width - 26) pen.fillText(tick.label, x(tick.at), AXIS / 2 - 1);
  }
}

function placeOf(row, view) {
  const top = AXIS + row.lane * view.rowHeight - view.scroll;
  const gap = view.rowHeight > 12 ? 3 : 1;
  return { top, height: view.rowHeight - gap };
}

function drawRow(pen, row, view, colours, x, font) {
  const { top, height } = placeOf(row, view);
  if (top > view.height || top + height < AXIS) return;
  if (row.attempts) drawAttempts(pen, row, view, colours, x, font, top, height);
  else drawBins(pen, row, colours, x, top, height);
}

function drawBins(pen, row, colours, x, top, height) {
  const { busy, failures, attempts, first, last } = row.bins;
  const step = (last - first) / busy.length;
  // Neighbours of one shade are one rectangle.
  for (let bin = 0; bin < busy.length; ) {
    const shade = shadeOf(busy[bin], attempts[bin]);
    let end = bin + 1;
    while (end < busy.length && shadeOf(busy[end], attempts[end]) === shade) end += 1;
    if (shade >= 0) {
      const left = x(first + bin * step);
      pen.fillStyle = colours.shades[shade];
      pen.fillRect(left, top, Math.max(1, x(first + end * step) - left), height);
    }
    bin = end;
  }
  for (let bin = 0; bin < failures.length; bin += 1) {
    if (!failures[bin]) continue;
    const part = Math.min(1, failures[bin] / Math.max(1, attempts[bin]));
    const tall = Math.max(3, height * part);
    const left = x(first + bin * step);
    const wide = Math.max(1.5, x(first + (bin + 1) * step) - left);
    // A line in the colour of the panel: red and blue alone are hard to tell apart for some.
    pen.fillStyle = colours.panel;
    pen.fillRect(left, top + height - tall - 1, wide, 1);
    pen.fillStyle = colours.failed;
    pen.fillRect(left, top + height - tall, wide, tall);
  }
}

function shadeOf(busy, attempts) {
  if (busy <= 0.001 && !attempts) return -1;
  return Math.min(SHADES, Math.round(busy * SHADES));
}

function drawAttempts(pen, row, view, colours, x, font, top, height) {
  pen.font = `11px ${font}`;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const attempt of row.attempts) {
    const left = x(attempt.start);
    const right = x(attempt.end ?? view.now ?? view.last);
    const wide = Math.max(1.5, right - left - (right - left > 4 ? 1 : 0));
    const state = colours.fill[attempt.state] ? attempt.state : "QUEUED";
    const isMarked = view.selected === attempt || view.hovered === attempt;
    pen.fillStyle = colours.frame[state];
    if (wide <= 6 && !isMarked) {
      pen.fillRect(left, top, wide, height);
      continue;
    }
    pen.fillStyle = colours.fill[state];
    pen.strokeStyle = isMarked ? colours.text : colours.frame[state];
    pen.lineWidth = isMarked ? 2 : 1;
    pen.beginPath();
    pen.roundRect(left + 0.5, top + 0.5, Math.max(1, wide - 1), height - 1, 3);
    pen.fill();
    pen.stroke();
    if (state === "FAILED") hatch(pen, left + 1, top + 1, wide - 2, height - 2, colours.frame.FAILED);
    drawName(pen, attempt, colours, Math.max(left, gutterOf(view.width)), left + wide, top, height);
  }
}

// Slanted lines, so that failures are seen without colour, too.
function hatch(pen, left, top, width, height, colour) {
  if (width <= 0) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.globalAlpha = 0.55;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = -(top % HATCH); at < width + height; at += HATCH) {
    pen.moveTo(left + at, top);
    pen.lineTo(left + at - height, top + height);
  }
  pen.stroke();
  pen.restore();
}

function drawName(pen, attempt, colours, left, right, top, height) {
  if (height < 13 || right - left < 34) return;
  const name = printable(attempt.name);
  const room = right - left - 10;
  const letters = Math.floor(room / 6.2);
  if (letters < Math.min(name.length, FEWEST_LETTERS)) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, right - left, height);
  pen.clip();
  pen.fillStyle = colours.text;
  pen.fillText(name.length > letters ? name.slice(0, letters - 1) + "…" : name, left + 5, top + height / 2 + 0.5);
  pen.restore();
}

// A line between two nodes, from the names to the end of the rows.
function drawSeparators(pen, view, colours) {
  const rows = [...view.rows].sort((one, other) => one.lane - other.lane);
  pen.fillStyle = colours.edge;
  for (const [index, row] of rows.entries()) {
    if (index === 0 || row.core === null || rows[index - 1].node === row.node) continue;
    const { top, height } = placeOf(row, view);
    if (top > AXIS) pen.fillRect(0, top - (view.rowHeight - height + 1) / 2, view.width, 1);
  }
}

function drawLabels(pen, view, colours, font, gutter) {
  pen.fillStyle = colours.panel;
  pen.fillRect(0, 0, gutter, view.height);
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, gutter - 4, view.height - AXIS);
  pen.clip();
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  let shownNode = null;
  for (const row of [...view.rows].sort((one, other) => one.lane - other.lane)) {
    const { top, height } = placeOf(row, view);
    if (top + height < AXIS || top > view.height) continue;
    const middle = top + height / 2;
    if (row.node !== shownNode) {
      pen.fillStyle = colours.text;
      pen.font = `600 11.5px ${font}`;
      pen.textAlign = "left";
      pen.fillText(shorten(printable(row.node), gutter < 100 ? 6 : 12), 2, Math.max(middle, AXIS + 8));
      pen.textAlign = "right";
      shownNode = row.node;
    }
    if (row.core !== null && view.rowHeight >= 12) {
      pen.fillStyle = colours.muted;
      pen.font = `11px ${font}`;
      pen.fillText(String(row.core), gutter - 10, middle);
    }
  }
  pen.restore();
}

function shorten(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}
