// Where the time of cores went: waits, launches, gaps between attempts on a core, efficiency of nodes and cores.
import { meter } from "./charts.js";
import { run } from "./data.js";
import { h, refresh } from "./dom.js";
import { clock, count, duration, percent, plural } from "./format.js";
import { live } from "./live.js";
import { jobAddress, panel } from "./overview.js";

const MOST_CORES = 4096;
const OFTEN = 5000;

class Analysis {
  constructor() {
    this.element = h("div.stack", {}, h("p.muted.loading", {}, "Computing …"));
    this.read = -Infinity;
  }

  // The analysis reads all attempts: it is asked for rarely, and not again while an answer is awaited.
  async update() {
    if (this.asking || performance.now() - this.read < OFTEN || (this.shown && !live.summary.alive && this.final)) return;
    this.asking = true;
    this.final = !live.summary.alive;
    try {
      const analysis = await run.analysis();
      refresh(this.element, analysis, show);
      this.shown = true;
    } catch (error) {
      if (!this.shown) refresh(this.element, error.message, (sentence) => h("p.notice", { role: "alert" }, sentence));
    }
    this.asking = false;
    this.read = performance.now();
  }
}

function show(analysis) {
  if (!analysis.attempts) return h("section.panel", {}, h("p.empty", {}, "No job has started yet."));
  return [
    tiles(analysis),
    h("div.columns", {}, gapsPanel(analysis), launchesPanel(analysis)),
    nodesPanel(analysis.nodes),
    coresPanel(analysis.cores),
  ];
}

function tiles({ attempts, efficiency, waits, launches, gaps }) {
  const middle = (statistics) => (statistics ? duration(statistics.median) : "–");
  const longest = (statistics) => (statistics ? `at most ${duration(statistics.most)}` : "nothing yet");
  const shown = [
    ["Attempts", count(attempts), "that have started"],
    ["Efficiency", percent(efficiency, 1), "of cores from first to last attempt"],
    ["Wait", middle(waits), `median; ${longest(waits)}`],
    ["Launch", middle(launches), `median; ${longest(launches)}`],
    ["Gap on a core", middle(gaps), `median; ${longest(gaps)}`],
  ];
  return h(
    "dl.tiles",
    {},
    shown.map(([name, value, note]) => h("div.panel.tile", {}, h("dt.muted.small", {}, name), h("dd.tile-value", {}, value), h("dd.muted.small", {}, note))),
  );
}

function listTable(head, rows) {
  return h(
    "div.table-scroll",
    {},
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, head.map(([name, kind]) => h(kind ? `th.${kind}` : "th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) => h(head[index][1] ? `td.${head[index][1]}` : "td", {}, cell))))),
    ),
  );
}

const link = (name) => h("a.own-text", { href: jobAddress(name) }, name);

function gapsPanel({ largest_gaps: gaps }) {
  return panel(
    "Largest gaps",
    h("span.muted.small", {}, "a core without an attempt between two"),
    gaps.length
      ? listTable(
          [["Core"], ["Gap", "number"], ["From"], ["Between"]],
          gaps.map((gap) => [`${gap.node}:${gap.core}`, duration(gap.seconds), clock(gap.at, live.summary.at), [link(gap.before), " and ", link(gap.after)]]),
        )
      : h("p.empty", {}, "No core had a gap."),
  );
}

function launchesPanel({ slowest_launches: launches }) {
  return panel(
    "Slowest launches",
    h("span.muted.small", {}, "from free cores to a running process"),
    launches.length
      ? listTable(
          [["Job"], ["Launch", "number"], ["At"], ["Node"]],
          launches.map((one) => [link(one.name), duration(one.seconds), clock(one.at, live.summary.at), one.node]),
        )
      : h("p.empty", {}, "Nothing was launched yet."),
  );
}

function nodesPanel(nodes) {
  return panel(
    "Nodes",
    h("span.muted.small", {}, plural(nodes.length, "node")),
    listTable(
      [["Node"], ["Cores", "number"], ["Attempts", "number"], ["Busy", "number"], ["Gaps", "number"], ["Efficiency", "number"], ["Utilisation"]],
      nodes.map((node) => [
        node.node,
        count(node.cores),
        count(node.attempts),
        duration(node.busy_seconds),
        duration(node.gap_seconds),
        percent(node.efficiency, 1),
        h("span.meter-line", {}, meter(node.utilisation, `${percent(node.utilisation)} used`), h("span.small", {}, percent(node.utilisation))),
      ]),
    ),
  );
}

// One cell a core with its efficiency in percent, the stronger the better it was used.
function coresPanel(cores) {
  if (cores.length > MOST_CORES) return null;
  const nodes = new Map();
  for (const core of cores) nodes.set(core.node, [...(nodes.get(core.node) ?? []), core]);
  return panel(
    "Efficiency of cores",
    h("span.muted.small", {}, "percent of the time between first and last attempt"),
    [...nodes].map(([node, own]) => h("div.core-row", {}, h("span.small.own-text", {}, node), h("div.core-cells.heat", {}, own.map(cell)))),
  );
}

function cell(core) {
  const part = core.efficiency === null ? "no attempt" : `${percent(core.efficiency, 1)} of its time busy, ${plural(core.attempts, "attempt")}`;
  const number = h("span", {}, core.efficiency === null ? "–" : Math.round(100 * core.efficiency));
  const mark = h("i", { title: `${core.node}:${core.core}: ${part}` }, h("b"), number);
  mark.firstChild.style.opacity = String(core.efficiency ?? 0);
  return mark;
}

export function analysisView() {
  return new Analysis();
}
