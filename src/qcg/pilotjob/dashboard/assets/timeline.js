// The timeline: attempts by node and core, or by node. Zoom with the wheel, keys or a pinch, move by dragging.
import { graph, timeGraph } from "./charts.js";
import { h, hideTooltip, refresh, showTooltip, stateBadge, svg } from "./dom.js";
import { STATES, clock, count, duration, percent, plural } from "./format.js";
import { jobAddress } from "./overview.js";
import { AXIS, drawTimeline, gutterOf, readColours } from "./timeline_drawing.js";
import { watchKeys, watchPointers } from "./timeline_input.js";
import { TimelineRows } from "./timeline_rows.js";

const SHORTEST = 0.01;
const MOST_LISTED = 200;
const HELP = "Wheel or + and − zoom, drag or arrows move, Shift and drag zooms into a range, 0 shows all, n and p select an attempt, Enter opens it.";

class Timeline {
  constructor(parameters) {
    this.bounds = null;
    this.window = null;
    this.wish = [Number(parameters.get("first")), Number(parameters.get("last"))];
    this.level = parameters.get("level") === "node" ? "node" : "core";
    this.following = !this.wish[1];
    this.scroll = 0;
    this.selected = null;
    this.hovered = null;
    this.range = null;
    this.now = null;
    this.data = new TimelineRows(() => this.#received());
    this.#build();
    this.colours = null;
    this.onTheme = () => {
      this.colours = null;
      this.draw();
    };
    document.addEventListener("themechange", this.onTheme);
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(this.box);
    addEventListener("resize", this.onResize = () => this.#resized());
  }

  #build() {
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": `Timeline of attempts. ${HELP}`,
    });
    this.box = h("div.timeline-box", {}, this.canvas);
    this.status = h("p.muted.small", { role: "status" });
    this.legend = h("ul.legend.small", { "aria-label": "Colours of attempts" });
    this.overview = graph();
    this.list = h("div");
    const button = (label, words, action) => h("button.button", { type: "button", title: words, "aria-label": words, onclick: action }, label);
    const level = (name, words) =>
      h("button.button", { type: "button", "aria-pressed": String(this.level === name), "data-level": name, onclick: () => this.setLevel(name) }, words);
    this.element = h(
      "div.stack",
      {},
      h(
        "section.panel",
        { "aria-label": "Timeline" },
        h(
          "div.toolbar.timeline-tools",
          {},
          h("h2", {}, "Timeline"),
          h("span.spacer"),
          level("core", "by core"),
          level("node", "by node"),
          h("span.gap"),
          h("span.together", {}, button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5))),
          button("whole run", "Show the whole run", () => this.showAll()),
        ),
        this.overview.element,
        this.box,
        this.legend,
        this.status,
        h("p.muted.small.timeline-help", {}, HELP),
      ),
      this.list,
    );
    watchPointers(this.canvas, this);
    watchKeys(this.canvas, this);
  }

  update(summary) {
    const first = summary.started ?? summary.at;
    const last = Math.max(endOf(summary), first + 1);
    this.now = summary.alive && summary.ended === null ? summary.at : null;
    const known = this.bounds;
    this.bounds = [first, last];
    this.history = summary.history;
    if (!this.window) {
      this.window = this.following ? [first, last] : this.wish;
      this.ask();
    } else if (this.following && known[1] !== last) {
      this.window = [first, last];
      this.ask();
    } else if (known[1] !== last && this.window[1] >= known[1]) {
      this.ask();
    }
    this.drawOverview();
    this.draw();
  }

  close() {
    document.removeEventListener("themechange", this.onTheme);
    removeEventListener("resize", this.onResize);
    this.observer.disconnect();
    this.overview.close();
    clearTimeout(this.remembering);
    clearTimeout(this.later);
  }

  get width() {
    return Math.max(200, Math.floor(this.box.clientWidth));
  }

  get rowHeight() {
    if (this.level === "node") return 24;
    return this.data.lanes > 64 ? 11 : 17;
  }

  get plotWidth() {
    return this.width - gutterOf(this.width);
  }

  get height() {
    const room = Math.max(220, innerHeight - 320);
    return AXIS + Math.min(room, Math.max(2, this.data.lanes || 8) * this.rowHeight + 2);
  }

  setLevel(level) {
    this.level = level;
    this.scroll = 0;
    this.data.lanes = 0;
    for (const button of this.element.querySelectorAll("[data-level]")) button.setAttribute("aria-pressed", String(button.dataset.level === level));
    this.ask();
  }

  // Zooms by a factor around a time: the middle of the window without one.
  zoom(factor, around = (this.window[0] + this.window[1]) / 2) {
    const [first, last] = this.window;
    const length = Math.min(Math.max((last - first) * factor, SHORTEST), (this.bounds[1] - this.bounds[0]) * 1.1);
    const part = (around - first) / (last - first);
    this.show(around - part * length, around + (1 - part) * length);
  }

  move(seconds) {
    this.show(this.window[0] + seconds, this.window[1] + seconds);
  }

  scrollBy(pixels) {
    const most = Math.max(0, this.data.lanes * this.rowHeight - (this.height - AXIS));
    const scroll = Math.min(most, Math.max(0, this.scroll + pixels));
    if (scroll === this.scroll) return false;
    this.scroll = scroll;
    this.ask();
    return true;
  }

  showAll() {
    this.following = true;
    this.window = [...this.bounds];
    this.remember();
    this.ask();
  }

  show(first, last) {
    const length = last - first;
    const slack = length * 0.5;
    const lowest = this.bounds[0] - slack;
    const highest = this.bounds[1] + slack;
    if (first < lowest) [first, last] = [lowest, lowest + length];
    if (last > highest) [first, last] = [highest - length, highest];
    this.following = false;
    this.window = [first, last];
    this.remember();
    this.ask();
  }

  // The window is in the address, so that it can be sent to others and survives a reload.
  remember() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      const search = new URLSearchParams();
      if (!this.following) {
        search.set("first", this.window[0].toFixed(3));
        search.set("last", this.window[1].toFixed(3));
      }
      if (this.level !== "core") search.set("level", this.level);
      history.replaceState(null, "", search.size ? `#/timeline?${search}` : "#/timeline");
    }, 250);
  }

  ask() {
    if (!this.window || !this.box.clientWidth) return;
    const from = Math.floor(this.scroll / this.rowHeight);
    const rows = Math.ceil((this.height - AXIS) / this.rowHeight) + 1;
    this.data.ask({
      first: this.window[0],
      last: this.window[1],
      width: Math.ceil(this.plotWidth / 2),
      from,
      count: this.data.lanes ? rows : 64,
      level: this.level,
    });
    this.draw();
  }

  #received() {
    if (!this.canvas.isConnected) return;
    const before = this.shownHeight;
    this.draw();
    if (before !== this.shownHeight) this.ask();
    this.#askAgainIfOld();
    this.#listAttempts();
    this.#showLegend();
  }

  // What the bars of attempts mean; sums of many attempts are explained below them.
  #showLegend() {
    const shown = new Set(this.data.rows.flatMap((row) => row.attempts ?? []).map((attempt) => attempt.state));
    refresh(this.legend, STATES.filter((state) => shown.has(state)), (states) =>
      states.map((state) => h("li", { "data-state": state }, h("span.bar-key", { "aria-hidden": "true" }), state)),
    );
  }

  // The server answers at once with what it has, and reads the registry then: what is new comes a little later.
  #askAgainIfOld() {
    const old = this.data.end !== null && this.data.end < Math.min(this.bounds[1], this.window[1]) - 0.2;
    this.tries = old ? (this.tries ?? 0) + 1 : 0;
    clearTimeout(this.later);
    if (old && this.tries < 20) this.later = setTimeout(() => this.ask(), 1500);
  }

  #resized() {
    if (!this.window) return;
    this.drawOverview();
    this.ask();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = null;
      if (!this.window || !this.canvas.isConnected) return;
      this.colours ??= readColours();
      this.shownHeight = this.height;
      drawTimeline(this.canvas, {
        first: this.window[0], last: this.window[1], width: this.width, height: this.height, rows: this.data.rows,
        rowHeight: this.rowHeight, scroll: this.scroll, now: this.now, selected: this.selected, hovered: this.hovered, range: this.range,
      }, this.colours);
      this.#drawBrush();
      this.#say();
    });
  }

  #say() {
    const [first, last] = this.window;
    const what = this.level === "node" ? "node" : "core";
    let text = `${clock(first)} to ${clock(last, first)} (${duration(last - first)}), ${plural(this.data.lanes, what)}.`;
    if (this.data.rows.length && !this.data.some()) text += " Nothing ran at this time.";
    else if (this.data.rows.length && !this.data.exact()) text += ` Each column is a part of the time: the darker, the busier; red parts have failures. ${this.level === "node" ? "Choose “by core”" : "Zoom in"} to see attempts.`;
    if (this.data.note) text += ` ${this.data.note}`;
    if (this.selected) text = describe(this.selected).join(", ");
    if (this.data.error) text = this.data.error;
    if (this.status.textContent !== text) this.status.replaceChildren(h("span", {}, text));
    this.element.dataset.ready = String(!this.data.waiting);
  }

  drawOverview() {
    const history = this.history;
    if (!history?.busy.length || !this.window) return;
    const values = history.busy.map((busy, bin) => (history.cores[bin] ? busy / history.cores[bin] : null));
    this.overview.set((width) => {
      const left = gutterOf(width);
      const strip = timeGraph({ width, height: 48, first: this.bounds[0], step: history.width, last: this.bounds[1], maximum: 1, left, right: 0, axis: false,
        format: (value) => percent(value), label: "Utilisation of the whole run", series: [{ name: "in use", values, kind: "area", colour: "busy" }] });
      strip.classList.add("timeline-overview");
      this.brush = svg("g");
      strip.append(this.brush);
      strip.addEventListener("click", (event) => {
        const part = (event.clientX - strip.getBoundingClientRect().left - left) / (width - left);
        const middle = this.bounds[0] + part * (this.bounds[1] - this.bounds[0]);
        this.move(middle - (this.window[0] + this.window[1]) / 2);
      });
      this.#drawBrush(width, left);
      return strip;
    });
  }

  // The part of the run that the rows show.
  #drawBrush(width = this.width, left = gutterOf(this.width)) {
    const place = (at) => Math.min(width, Math.max(left, left + ((at - this.bounds[0]) / (this.bounds[1] - this.bounds[0])) * (width - left)));
    const [from, to] = this.window.map(place);
    if (!this.brush || this.following) return this.brush?.replaceChildren();
    this.brush.replaceChildren(
      svg("rect.brush", { x: from, y: 4, width: Math.max(1, to - from), height: 42 }),
      svg("line.brush-edge", { x1: from, x2: from, y1: 4, y2: 46 }),
      svg("line.brush-edge", { x1: to, x2: to, y1: 4, y2: 46 }),
    );
  }

  // What is under a place of the canvas: {row, attempt} or {row, bin}.
  at(x, y) {
    const lane = Math.floor((y - AXIS + this.scroll) / this.rowHeight);
    const row = this.data.rows.find((one) => one.lane === lane);
    if (!row || x < gutterOf(this.width) || y < AXIS) return null;
    const time = this.timeAt(x);
    if (row.attempts) {
      const pixel = (this.window[1] - this.window[0]) / this.plotWidth;
      const attempt = row.attempts.find((one) => one.start - pixel <= time && time <= (one.end ?? this.now ?? Infinity) + pixel);
      return attempt ? { row, attempt } : null;
    }
    const { first, last, busy } = row.bins;
    const bin = Math.floor(((time - first) / (last - first)) * busy.length);
    return bin >= 0 && bin < busy.length ? { row, bin } : null;
  }

  timeAt(x) {
    const gutter = gutterOf(this.width);
    return this.window[0] + ((x - gutter) / this.plotWidth) * (this.window[1] - this.window[0]);
  }

  hover(found, clientX, clientY) {
    this.hovered = found?.attempt ?? null;
    if (found) showTooltip(clientX, clientY, ...(found.attempt ? describe(found.attempt) : describeBin(found)));
    else hideTooltip();
    this.canvas.style.cursor = found?.attempt ? "pointer" : "";
    this.draw();
  }

  open(found) {
    if (found?.attempt) location.hash = jobAddress(found.attempt.name);
  }

  select(step) {
    const visible = this.data.attemptsIn(...this.window);
    if (!visible.length) return;
    const at = visible.findIndex(({ attempt }) => same(attempt, this.selected));
    this.selected = visible[at < 0 ? 0 : (at + step + visible.length) % visible.length].attempt;
    this.draw();
  }

  #listAttempts() {
    const visible = this.data.exact() ? this.data.attemptsIn(...this.window) : [];
    const one = new Map(visible.map(({ row, attempt }) => [`${attempt.name} ${attempt.attempt}`, { row, attempt }]));
    const listed = [...one.values()].slice(0, MOST_LISTED);
    refresh(this.list, listed.map(({ row, attempt }) => [row.node, attempt]), () =>
      listed.length
        ? h(
            "details.panel",
            {},
            h("summary", {}, `Attempts in this window: ${one.size > MOST_LISTED ? `the first ${MOST_LISTED} of ${count(one.size)}` : count(one.size)}`),
            h("div.table-scroll", {}, attemptsTable(listed)),
          )
        : null,
    );
  }
}

// Of a run that was cut off, the time since then has nothing to show.
function endOf({ ended, alive, at, history }) {
  if (ended !== null || alive || !history) return ended ?? at;
  return Math.min(at, history.first + history.width * history.busy.length);
}

function same(one, other) {
  return other && one.name === other.name && one.attempt === other.attempt;
}

function describe(attempt) {
  const lines = [attempt.name, `${attempt.state}${attempt.attempt > 1 ? `, attempt ${attempt.attempt}` : ""}`, `started ${clock(attempt.start, attempt.start, true)}`];
  lines.push(attempt.end === null ? "runs" : `took ${duration(attempt.end - attempt.start)}`);
  return lines;
}

function describeBin({ row, bin }) {
  const { first, last, busy, attempts, failures } = row.bins;
  const step = (last - first) / busy.length;
  const place = row.core === null ? row.node : `${row.node}, core ${row.core}`;
  const lines = [place, `${clock(first + bin * step, first)}, ${duration(step)}`, `busy ${percent(busy[bin])}`];
  if (attempts[bin]) lines.push(plural(attempts[bin], "attempt") + (failures[bin] ? `, ${count(failures[bin])} failed` : ""));
  return lines;
}

function attemptsTable(listed) {
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ["Job", "Attempt", "State", "Node", "Started", "Took"].map((name) => h("th", { scope: "col" }, name)))),
    h(
      "tbody",
      {},
      listed.map(({ row, attempt }) =>
        h(
          "tr",
          {},
          h("td", {}, h("a", { href: jobAddress(attempt.name) }, attempt.name)),
          h("td", {}, attempt.attempt),
          h("td", {}, stateBadge(attempt.state)),
          h("td", {}, row.node),
          h("td", {}, clock(attempt.start, attempt.start, true)),
          h("td.number", {}, attempt.end === null ? "runs" : duration(attempt.end - attempt.start)),
        ),
      ),
    ),
  );
}

export function timelineView({ parameters }) {
  return new Timeline(parameters);
}
