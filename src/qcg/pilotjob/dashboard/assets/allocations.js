// The allocations of a run, one after another or several at a time.
import { run } from "./data.js";
import { h, refresh } from "./dom.js";
import { count } from "./format.js";
import { panel } from "./overview.js";

const HEAD = ["Allocation", "Batch system", "Nodes", "Cores", "Use"];
const OFTEN = 10000;

class Allocations {
  constructor() {
    this.element = h("div.stack");
    this.read = -Infinity;
  }

  async update() {
    if (performance.now() - this.read < OFTEN) return;
    this.read = performance.now();
    try {
      const { allocations } = await run.allocations();
      refresh(this.element, allocations, show);
    } catch (error) {
      refresh(this.element, error.message, (sentence) => h("p.notice", { role: "alert" }, sentence));
    }
  }
}

function show(allocations) {
  return panel(
    "Allocations",
    h("span.muted.small", {}, "in the order of their submission"),
    allocations.length ? table(allocations) : h("p.empty", {}, "This run has no allocations: it uses the machine on which it was started, or hosts of its own."),
  );
}

function table(allocations) {
  return h(
    "div.table-scroll",
    {},
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, HEAD.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, allocations.map(row)),
    ),
  );
}

function row(line) {
  const number = (value) => (value === null || value === undefined ? "–" : count(value));
  return h(
    "tr",
    {},
    h("td", {}, h("b", {}, line.id)),
    h("td", {}, line.system || "–"),
    h("td", {}, number(line.nodes)),
    h("td", {}, number(line.cores)),
    h("td.muted", {}, line.current ? "used last" : ""),
  );
}

export function allocationsView() {
  return new Allocations();
}
