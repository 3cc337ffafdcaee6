// The first view: how far the run is, when it ends, what it uses, what waits and what failed.
import { graph, stateBar, timeGraph } from "./charts.js";
import { h, outputText, refresh } from "./dom.js";
import { FINAL, byState, clock, count, duration, percent, plural, rate, sum } from "./format.js";
import { live } from "./live.js";
import { nodeStrip } from "./nodes.js";

// Of a large run without a manager the numbers come first.
const READING = "The registry is being read …";

function isReading({ alive, history, units }) {
  return !alive && !history && Object.keys(units).some((state) => FINAL.has(state) && state !== "OMITTED" && state !== "CANCELED");
}

export const jobAddress = (name) => `#/job/${encodeURIComponent(name)}`;

export function overviewView() {
  const parts = Object.fromEntries(["notices", "progress", "tiles", "waiting", "failed", "nodes"].map((name) => [name, h("div")]));
  const utilisation = graph();
  const throughput = graph();
  const utilisationText = h("span.muted.small");
  const throughputText = h("span.muted.small");
  const element = h(
    "div.stack",
    {},
    parts.notices,
    h("section.panel", { "aria-label": "Progress" }, parts.progress),
    h("section", { "aria-label": "Numbers" }, parts.tiles),
    h(
      "div.columns",
      {},
      panel("Utilisation", utilisationText, utilisation.element, legend(["busy", "cores in use"])),
      panel("Throughput", throughputText, throughput.element, legend(["ends", "ended"], ["failures", "failed"])),
    ),
    h("div.columns", {}, parts.failed, parts.waiting),
    parts.nodes,
  );
  return {
    element,
    update(summary) {
      refresh(parts.notices, notices(summary), showNotices);
      refresh(parts.progress, progressOf(summary), showProgress);
      refresh(parts.tiles, tilesOf(summary), showTiles);
      refresh(parts.failed, [summary.failed, summary.units.FAILED ?? 0, sum(summary.history?.failures ?? [])], showFailures);
      refresh(parts.waiting, summary.waiting, showWaiting);
      refresh(parts.nodes, [summary.nodes, summary.more_nodes], showNodes);
      showHistory(summary, utilisation, throughput, utilisationText, throughputText);
    },
    close() {
      utilisation.close();
      throughput.close();
    },
  };
}

export function panel(title, beside, ...content) {
  return h("section.panel", { "aria-label": title }, h("div.panel-head", {}, h("h2", {}, title), beside), content);
}

function notices(summary) {
  const stalled = "The registry cannot be written, so nothing is started. Is the disk full?";
  return [...(summary.stalled ? [stalled] : []), ...summary.notices];
}

function showNotices(sentences) {
  return sentences.map((sentence) => h("p.notice.own-text", { role: "alert" }, sentence));
}

function progressOf({ units, estimate, alive, ended, started, at }) {
  const total = sum(Object.values(units));
  const done = sum(Object.entries(units).filter(([state]) => FINAL.has(state)).map(([, number]) => number));
  return { units, total, done, estimate, alive, ended, started, at: estimate ? Math.round(at) : null };
}

function showProgress({ units, total, done, estimate, alive, ended, started, at }) {
  const counts = byState(units);
  return [
    h(
      "div.hero",
      {},
      h(
        "div",
        {},
        h("p.hero-number", { id: "done-percent" }, percent(total ? Math.floor((1000 * done) / total) / 1000 : 0, done && done < total ? 1 : 0)),
        h("p.muted", {}, `${count(done)} of ${plural(total, "job or iteration", "jobs and iterations")} done`),
      ),
      h("div.hero-side", {}, endOf({ total, done, estimate, alive, ended, started, at })),
    ),
    stateBar(counts, "large"),
    h(
      "ul.legend",
      { "aria-label": "Numbers by state" },
      counts.map(([state, number]) =>
        h(
          "li",
          {},
          h("a", { href: `#/jobs?state=${state}`, "data-state": state }, h("span.dot", { "aria-hidden": "true" }), h("b", {}, count(number)), " ", state),
        ),
      ),
    ),
  ];
}

function endOf({ total, done, estimate, alive, ended, started, at }) {
  if (estimate && alive) {
    const range = `between ${clock(estimate.earliest, at)} and ${clock(estimate.latest, at)}`;
    return [
      h("p.hero-word", {}, `about ${roughly(estimate.at - at)} left`),
      h("p.muted.small", {}, `As likely as not, it ends ${range}.`),
      h("details.small.basis", {}, h("summary", {}, "how this is known"), h("p.muted", {}, estimate.basis)),
    ];
  }
  if (ended !== null && started !== null) {
    return [h("p.hero-word", {}, `took ${duration(ended - started)}`), h("p.muted.small", {}, `ended at ${clock(ended, Date.now() / 1000)}`)];
  }
  if (!total) return h("p.muted", {}, "No job was submitted yet.");
  if (!alive && done === total) return h("p.muted", {}, "Every job is final.");
  if (!alive) return h("p.muted", {}, `${plural(total - done, "job is", "jobs are")} not final, and no manager runs.`);
  return h("p.muted", {}, "The end is not known yet.");
}

function roughly(seconds) {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.max(1, Math.round(s))} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${(s / 86400).toFixed(1)} days`;
}

function tilesOf(summary) {
  const end = summary.ended ?? summary.at;
  const tiles = [
    ["Running", count(summary.running), plural(summary.units.QUEUED ?? 0, "waits", "wait")],
    ["Cores in use", `${count(summary.used)} / ${count(summary.cores)}`, percent(summary.cores ? summary.used / summary.cores : null)],
  ];
  if (summary.gpus) tiles.push(["GPUs in use", `${+summary.gpus_used.toFixed(2)} / ${+summary.gpus.toFixed(2)}`, percent(summary.gpus_used / summary.gpus)]);
  const rates = summary.rates;
  if (summary.alive) tiles.push(["Ends", rates ? rate(rates.ends) : "–", rates ? `started ${rate(rates.starts)}` : "nothing yet"]);
  else tiles.push(["Mean rate", meanRate(summary), "ends over the whole run"]);
  tiles.push(["Utilisation", percent(utilisationOf(summary.history)), summary.alive ? "of all cores, so far" : "of all cores"]);
  if (isReading(summary)) tiles.push(["Elapsed", "–", ""]);
  else tiles.push(["Elapsed", summary.started === null ? "–" : elapsed(end - summary.started), summary.started === null ? "" : `since ${clock(summary.started, end)}`]);
  return tiles;
}

function elapsed(seconds) {
  return seconds < 60 ? `${Math.max(0, Math.round(seconds))} s` : duration(seconds);
}

function meanRate({ history, started, ended, at }) {
  const seconds = (ended ?? at) - started;
  return history && seconds > 0 ? rate(sum(history.ends) / seconds) : "–";
}

function utilisationOf(history) {
  const cores = history ? sum(history.cores) : 0;
  return cores ? sum(history.busy) / cores : null;
}

function showTiles(tiles) {
  return h(
    "dl.tiles",
    {},
    tiles.map(([name, value, note]) => h("div.panel.tile", {}, h("dt.muted.small", {}, name), h("dd.tile-value", {}, value), h("dd.muted.small", {}, note))),
  );
}

function legend(...keys) {
  return h("p.muted.small.graph-legend", {}, keys.map(([kind, words]) => h("span", {}, h(`span.key.${kind}`), words)));
}

function showHistory(summary, utilisation, throughput, utilisationText, throughputText) {
  const history = summary.history;
  if (!history || !history.busy.length) {
    utilisationText.textContent = throughputText.textContent = isReading(summary) ? READING : "nothing has started yet";
    return;
  }
  const last = Math.min(history.first + history.width * history.busy.length, summary.ended ?? summary.at);
  const end = Math.max(last, history.first + Math.min(1, history.width));
  const common = { first: history.first, step: history.width, last: end };
  const used = history.busy.map((busy, bin) => (history.cores[bin] ? busy / history.cores[bin] : null));
  utilisationText.textContent = `one step is ${duration(history.width)}`;
  throughputText.textContent = `ends in steps of ${duration(history.width)}`;
  utilisation.set((width) =>
    timeGraph({ ...common, width, maximum: 1, format: (value) => percent(value), label: "Part of the cores in use, over time",
      series: [{ name: "in use", values: used, kind: "area", colour: "busy" }] }),
  );
  throughput.set((width) =>
    timeGraph({ ...common, width, format: compact, label: "Ends of attempts over time",
      series: [
        { name: "ended", values: history.ends, kind: "bars", colour: "ends" },
        { name: "failed", values: history.failures, kind: "bars", colour: "failures" },
      ] }),
  );
}

function compact(number) {
  if (number >= 1e6) return `${+(number / 1e6).toFixed(1)}M`;
  if (number >= 1e4) return `${+(number / 1e3).toFixed(1)}k`;
  return String(+number.toFixed(1));
}

// `attempts`: the number of failed attempts, also of those that were repeated.
function showFailures([groups, total, attempts]) {
  const more = total - sum(groups.map((group) => group.count));
  return panel(
    "Failures",
    total ? h("a.small", { href: "#/jobs?state=FAILED" }, `all ${count(total)}`) : h("span.muted.small", {}, "none"),
    groups.length ? null : h("p.empty", {}, total ? READING : "No job has failed."),
    groups.map((group) =>
      h(
        "article.group",
        {},
        h("p.group-head", {}, h("b.group-count", { "data-state": "FAILED" }, count(group.count)), h("span.own-text", {}, group.sentence)),
        h("p.muted.small", {}, "for example ", h("a.own-text", { href: jobAddress(group.example) }, group.example)),
        group.last_lines.length
          ? h("pre.last-lines", { tabindex: 0, "aria-label": `Last lines of ${group.example}` }, outputText(group.last_lines.join("\n")))
          : null,
      ),
    ),
    groups.length && more > 0 ? h("p.muted.small", {}, `${count(more)} more failed for other reasons.`) : null,
    attempts > total
      ? h("p.muted.small.failed-attempts", {}, `${plural(attempts, "attempt has", "attempts have")} failed, including those whose job was started again.`)
      : null,
  );
}

function showWaiting(groups) {
  const most = Math.max(...groups.map((group) => group.count), 1);
  return panel(
    "Waiting",
    h("span.muted.small", {}, groups.length ? "by reason" : "nothing"),
    groups.length ? null : h("p.empty", {}, live.summary.alive ? "Nothing waits." : "Nothing waits any more."),
    groups.map((group) => {
      const bar = h("span.group-bar");
      bar.style.width = `${Math.max(1, (100 * group.count) / most)}%`;
      return h(
        "article.group",
        {},
        h("p.group-head", {}, h("b.group-count", { "data-state": "QUEUED" }, count(group.count)), h("span.own-text", {}, group.sentence)),
        h("span.group-track", { "aria-hidden": "true" }, bar),
        h("p.muted.small", {}, "for example ", h("a.own-text", { href: jobAddress(group.example) }, group.example)),
      );
    }),
  );
}

function showNodes([nodes, more]) {
  if (!nodes.length) return null;
  return panel(
    "Nodes",
    h("a.small", { href: "#/nodes" }, plural(nodes.length + more, "node")),
    nodeStrip(nodes),
    more ? h("p.muted.small", {}, `${count(more)} more are ready.`) : null,
  );
}
