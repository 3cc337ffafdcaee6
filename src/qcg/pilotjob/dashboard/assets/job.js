// One job: why it is in its state, its attempts, what it used, its output, and the jobs around it.
import { run } from "./data.js";
import { drawGraph } from "./dependency_graph.js";
import { h, outputText, refresh, say, stateBadge } from "./dom.js";
import { FINAL, bytes, clock, duration, fullTime, percent } from "./format.js";
import { JobOutput } from "./job_output.js";
import { tookOf } from "./jobs.js";
import { live } from "./live.js";
import { jobAddress, panel } from "./overview.js";

const ACTIONS = {
  cancel: ["Cancel", "Cancel this job? Its processes are ended."],
  rerun: ["Run again", "Run this job again? The results of the last attempt may be overwritten."],
  hold: ["Hold", "Hold this job? It does not start until it is released."],
  release: ["Release", "Release this job? It may start again."],
};

class Job {
  constructor(name) {
    this.name = name;
    this.output = new JobOutput(name);
    this.parts = Object.fromEntries(["head", "facts", "attempts", "graph", "description"].map((part) => [part, h("div")]));
    const { head, facts, attempts, graph, description } = this.parts;
    this.element = h("div.stack", {}, h("section.panel", { "aria-label": "Job" }, head, facts), attempts, this.output.element, graph, description);
  }

  update() {
    if (this.loading) this.again = true;
    else this.load();
  }

  async load() {
    this.loading = true;
    try {
      this.#show(await run.job(this.name));
      if (!this.graphRead || live.summary.alive) this.#showGraph(await run.graph(this.name));
    } catch (error) {
      if (!this.details) this.element.replaceChildren(h("section.panel", {}, h("h2", {}, this.name), h("p.notice", { role: "alert" }, error.message)));
    }
    this.timer = setTimeout(() => {
      this.loading = false;
      if (this.again && !this.settled) {
        this.again = false;
        this.load();
      }
    }, 1000);
  }

  #show(details) {
    this.details = details;
    const { line } = details;
    this.settled = FINAL.has(line.state) && !live.summary.alive;
    const running = !FINAL.has(line.state);
    refresh(this.parts.head, [line.name, line.state, details.why, details.actions, live.control], () => this.#head(details));
    refresh(this.parts.facts, [line, details.why, running ? Math.round(live.summary.at) : 0], () => facts(line, details.why));
    refresh(this.parts.attempts, details.attempts, (attempts) => (attempts.length ? attemptsPanel(attempts, line) : null));
    refresh(this.parts.description, details.description, describe);
    this.output.set(details.streams, running && live.summary.alive, line.state === "FAILED");
  }

  #head({ line, why, actions }) {
    const iterated = Object.keys(line.iterations ?? {}).length > 0;
    return [
      h(
        "div.panel-head",
        {},
        h("h2.job-title.own-text", {}, line.name),
        h("div.toolbar", {}, stateBadge(line.state), live.control ? actions.map((action) => this.#button(action)) : null),
      ),
      why ? h("p.why.own-text", {}, why) : null,
      iterated ? h("p.small", {}, h("a", { href: `#/jobs?job=${encodeURIComponent(line.name)}` }, "Show its iterations")) : null,
    ];
  }

  #button(action) {
    const [label, question] = ACTIONS[action];
    return h("button.button", { type: "button", "data-action": action, "data-kind": action === "cancel" ? "danger" : null, onclick: () => this.#confirm(action, label, question) }, label);
  }

  #confirm(action, label, question) {
    const dialog = h(
      "dialog",
      { "aria-label": label },
      h("p", {}, h("b.own-text", {}, this.name)),
      h("p", {}, question),
      h(
        "div.toolbar",
        {},
        h("button.button", { type: "button", onclick: () => dialog.close() }, "No"),
        h("button.button", { type: "button", "data-kind": "main", onclick: () => this.#act(action, dialog) }, label),
      ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async #act(action, dialog) {
    dialog.close();
    try {
      const answer = await run.act(action, [this.name]);
      say(answer.message);
      this.load();
    } catch (error) {
      say(error.message, "error");
    }
  }

  #showGraph(graph) {
    this.graphRead = true;
    if (!graph || !graph.edges.length) return;
    refresh(this.parts.graph, graph, () =>
      panel(
        "Dependencies",
        h("span.muted.small", {}, graph.cut ? "the nearest jobs" : "what it waits for, and what waits for it"),
        h("div.graph-scroll", { tabindex: 0, "aria-label": "Dependency graph" }, drawGraph(graph, this.name, jobAddress)),
      ),
    );
  }

  close() {
    clearTimeout(this.timer);
    this.settled = true;
    this.output.close();
  }
}

function facts(line, why) {
  const at = live.summary.at;
  const waited = line.started !== null ? line.started - line.submitted : null;
  const rows = [
    ["Submitted", h("time", { title: fullTime(line.submitted) }, clock(line.submitted, at))],
    ["Waited", waited === null ? "–" : duration(waited)],
    ["Started", line.started === null ? "–" : h("time", { title: fullTime(line.started) }, clock(line.started, at))],
    ["Took", duration(tookOf(line, at))],
    ["Exit code", line.exit_code ?? "–"],
    ["Cores", line.grant || "–"],
    ["CPU efficiency", line.cpu_efficiency === null ? "–" : percent(line.cpu_efficiency)],
    ["Peak memory", bytes(line.max_memory)],
  ];
  return [
    h("dl.facts", {}, rows.map(([name, value]) => h("div", {}, h("dt.muted.small", {}, name), h("dd", {}, value)))),
    line.message && !why.includes(line.message) ? h("p.job-message.own-text", { "data-state": line.state }, line.message) : null,
  ];
}

const HEAD = ["Attempt", "State", "Started", "Took", "Exit code", "Cores", "CPU", "Memory", "Read", "Written", "Why repeated"];

function attemptsPanel(attempts, line) {
  const first = Math.min(...attempts.map((one) => one.scheduled ?? one.started ?? Infinity), line.submitted);
  const last = Math.max(...attempts.map((one) => one.ended ?? live.summary.at));
  return panel(
    "Attempts",
    h("span.muted.small", {}, `${duration(last - first)} from submission to end`),
    h("div.phases", { "aria-hidden": "true" }, attempts.map((attempt) => phases(attempt, first, last))),
    h(
      "div.table-scroll",
      { tabindex: 0, "aria-label": "Attempts" },
      h("table.attempts", {}, h("thead", {}, h("tr", {}, HEAD.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, attempts.map(attemptRow))),
    ),
  );
}

// Waiting and running of one attempt, on the time from submission to the last end.
function phases(attempt, first, last) {
  const length = Math.max(last - first, 1e-9);
  const bar = h("div.phase-row");
  const part = (from, to, kind, state) => {
    if (from === null || to === null) return;
    const piece = h(`span.${kind}`, { "data-state": state });
    piece.style.left = `${(100 * (from - first)) / length}%`;
    piece.style.width = `${Math.max(0.3, (100 * (to - from)) / length)}%`;
    bar.append(piece);
  };
  part(attempt.number === 1 ? first : attempt.scheduled, attempt.started ?? attempt.ended ?? last, "waits", attempt.state);
  if (attempt.started !== null) part(attempt.started, attempt.ended ?? last, "runs", attempt.state);
  return bar;
}

function attemptRow(attempt) {
  const took = attempt.started === null ? null : (attempt.ended ?? live.summary.at) - attempt.started;
  const cells = [
    attempt.number,
    stateBadge(attempt.state),
    attempt.started === null ? "–" : clock(attempt.started, live.summary.at),
    duration(took),
    attempt.exit_code ?? "–",
    attempt.grant || "–",
    attempt.cpu_efficiency === null ? "–" : percent(attempt.cpu_efficiency),
    bytes(attempt.max_memory),
    bytes(attempt.read),
    bytes(attempt.written),
    attempt.rerun_at ? `run again at ${clock(attempt.rerun_at, live.summary.at)}` : attempt.cause || "–",
  ];
  const row = h("tr", {}, cells.map((cell, index) => h("td", { "data-label": HEAD[index] }, cell)));
  // Its own columns say which attempt it is and how it exited.
  const isKnown = !attempt.message || attempt.message.replace(/ \(attempt \d+\)$/, "") === `exit code ${attempt.exit_code}`;
  return isKnown ? row : [row, h("tr.under", {}, h("td", { colspan: HEAD.length }, attempt.message))];
}

function describe(text) {
  if (!text) return null;
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    shown = text;
  }
  return h("details.panel", {}, h("summary", {}, "Description"), h("pre.output", { tabindex: 0 }, outputText(shown)));
}

export function jobView({ argument }) {
  return new Job(argument);
}
