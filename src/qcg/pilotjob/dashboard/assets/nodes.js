// Nodes and remote hosts with the cores and GPUs in use.
import { meter } from "./charts.js";
import { h, refresh } from "./dom.js";
import { clock, count, percent, plural } from "./format.js";

const FEW = 24;

// Few nodes with their names and numbers; a small cell for each of many, as dark as it is busy.
export function nodeStrip(nodes) {
  const few = nodes.length <= FEW;
  return h(
    "ul.node-strip",
    { "data-size": few ? "few" : "many" },
    nodes.map((node) => {
      const part = node.cores ? node.used / node.cores : 0;
      const words = `${node.name}: ${node.used} of ${plural(node.cores, "core")} in use${node.state === "ready" ? "" : `, ${node.state}`}`;
      const attributes = { title: words, "data-node": node.state };
      if (few) {
        const numbers = h("span.muted", {}, `${count(node.used)} / ${count(node.cores)}`);
        return h("li", attributes, h("span.few-head.small", {}, h("span.own-text", {}, node.name), numbers), meter(part, words));
      }
      const level = h("span.level");
      level.style.height = `${Math.round(100 * part)}%`;
      return h("li", attributes, h("span.cell", { role: "img", "aria-label": words }, level));
    }),
  );
}

export function nodesView() {
  const element = h("div.stack");
  return {
    element,
    update(summary) {
      refresh(element, [summary.nodes, summary.more_nodes, summary.used, summary.cores], () => [
        h(
          "div.toolbar",
          {},
          h("h2", {}, plural(summary.nodes.length + summary.more_nodes, "node")),
          h("span.muted", {}, `${count(summary.used)} of ${plural(summary.cores, "core")} in use (${percent(summary.cores ? summary.used / summary.cores : null)})`),
        ),
        summary.nodes.length ? null : h("p.empty", {}, "This run has no nodes now."),
        h("ul.node-grid", {}, summary.nodes.map(nodeCard)),
        summary.more_nodes ? h("p.muted", {}, `${count(summary.more_nodes)} more nodes are ready; they are not listed.`) : null,
      ]);
    },
  };
}

function nodeCard(node) {
  return h(
    "li.panel.node-card",
    { "data-node": node.state },
    h("p.node-head", {}, h("b.own-text", {}, node.name), h("span.node-state", {}, node.remote ? `remote, ${node.state}` : node.state)),
    meter(node.cores ? node.used / node.cores : 0, `${node.used} of ${node.cores} cores in use`),
    h("p.muted.small", {}, `${count(node.used)} / ${plural(node.cores, "core")}`, node.gpus ? ` · ${+node.gpus_used.toFixed(2)} / ${plural(node.gpus, "GPU")}` : ""),
    node.cores <= 256 ? coreCells(node) : null,
    node.reason ? h("p.small.own-text", {}, node.since ? `since ${clock(node.since)}: ` : "", node.reason) : null,
  );
}

// One cell a core. Which of them are in use is not said by a summary: as many as are in use are filled.
function coreCells(node) {
  return h(
    "div.core-cells",
    { "aria-hidden": "true" },
    Array.from({ length: node.cores }, (_, core) => h(core < node.used ? "i.used" : "i")),
  );
}
