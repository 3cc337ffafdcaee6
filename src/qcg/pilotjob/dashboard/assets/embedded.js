// The data of a page that is one file: the answers of the server, computed from what the file has.
import { embeddedTimeline } from "./embedded_timeline.js";

const ORDERS = {
  name: (line) => line.name,
  state: (line) => line.state,
  submitted: (line) => line.submitted,
  started: (line) => line.started,
  ended: (line) => line.ended,
  duration: (line) => (line.started === null || line.ended === null ? null : line.ended - line.started),
  memory: (line) => line.max_memory,
};

function missing(sentence) {
  return Object.assign(new Error(sentence), { status: 404 });
}

// A pattern with * and ?, or a part of a name.
function matcher(search) {
  const wanted = search.toLowerCase();
  if (!/[*?]/.test(wanted)) return (name) => name.toLowerCase().includes(wanted);
  const pattern = wanted.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^]*").replace(/\?/g, "[^]");
  const expression = new RegExp(`^${pattern}$`);
  return (name) => expression.test(name.toLowerCase());
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null);
  return one < other ? -1 : one > other ? 1 : 0;
}

export class EmbeddedRun {
  live = false;
  #data;

  constructor(data) {
    this.#data = data;
  }

  async summary() {
    return { ...this.#data.summary, control: false };
  }

  async jobs({ search = "", state = [], job = "", sort = "submitted", descending = false, first = 0, limit = 100 }) {
    const list = job ? (this.#data.iterations[job] ?? { total: 0, lines: [] }) : this.#data.jobs;
    const matches = matcher(search);
    const found = list.lines.filter((line) => (!state.length || state.includes(line.state)) && matches(line.name));
    const order = ORDERS[sort];
    found.sort((one, other) => (descending ? compare(order(other), order(one)) : compare(order(one), order(other))));
    const left = list.total - list.lines.length;
    return { total: found.length, lines: found.slice(first, first + limit), note: left > 0 ? `this file lists ${list.lines.length} of ${list.total}: failed ones first` : "" };
  }

  async job(name) {
    const details = this.#data.details[name];
    if (details) return details;
    const lines = [...this.#data.jobs.lines, ...Object.values(this.#data.iterations).flatMap((list) => list.lines)];
    const line = lines.find((one) => one.name === name);
    if (!line) throw missing("This file has nothing about this job. It lists a part of the jobs of a large run; qcg-pm dashboard shows all.");
    return { line, why: "", attempts: [], streams: {}, dependencies: [], description: "" };
  }

  async output(name, stream) {
    const output = this.#data.outputs[name]?.[stream];
    if (!output) throw missing("This file does not have this output.");
    return output;
  }

  async graph(name) {
    return this.#data.graphs[name] ?? this.#data.graphs[name.split(":", 1)[0]] ?? { nodes: [], edges: [], cut: false };
  }

  async timeline(parameters) {
    return embeddedTimeline(this.#data.timeline, parameters);
  }

  async analysis() {
    return this.#data.analysis;
  }

  async allocations() {
    return this.#data.allocations;
  }
}
