// Where the page gets its data: the server of the dashboard, or the page itself.
import { EmbeddedRun } from "./embedded.js";

export class RequestError extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

function query(parameters) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") search.append(name, one);
    }
  }
  return search.toString();
}

// Requests to the server. All addresses are relative to the page, so it works below any prefix.
class ServedRun {
  live = true;

  summary(signal) {
    return this.#get("api/summary", {}, signal);
  }

  // The next summary after one, or null if there was none for a while.
  poll(after, signal) {
    return this.#get("api/poll", { after }, signal);
  }

  events() {
    return new EventSource("api/events");
  }

  jobs(parameters, signal) {
    return this.#get("api/jobs", parameters, signal);
  }

  job(name, signal) {
    return this.#get("api/job", { name }, signal);
  }

  output(name, stream, offset, signal) {
    return this.#get("api/output", { name, stream, offset }, signal);
  }

  graph(name, signal) {
    return this.#get("api/graph", { name, depth: 2 }, signal);
  }

  timeline(parameters, signal) {
    return this.#get("api/timeline", parameters, signal);
  }

  usage(parameters, signal) {
    return this.#get("api/usage", parameters, signal);
  }

  analysis(signal) {
    return this.#get("api/analysis", {}, signal);
  }

  allocations(signal) {
    return this.#get("api/allocations", {}, signal);
  }

  act(action, names) {
    const headers = { "Content-Type": "application/json", "X-QCG-PM": "1" };
    return this.#answer(fetch("api/act", { method: "POST", headers, body: JSON.stringify({ action, names }) }));
  }

  #get(address, parameters, signal) {
    const search = query(parameters);
    return this.#answer(fetch(search ? `${address}?${search}` : address, { signal, cache: "no-store" }));
  }

  async #answer(request) {
    let response;
    try {
      response = await request;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestError("The dashboard does not answer. Is qcg-pm dashboard still running?", 0);
    }
    if (response.status === 204) return null;
    const text = await response.text();
    if (response.ok) return JSON.parse(text);
    throw new RequestError(errorSentence(text) ?? `The dashboard answered with status ${response.status}.`, response.status);
  }
}

function errorSentence(text) {
  try {
    return JSON.parse(text).error;
  } catch {
    return null;
  }
}

const embedded = document.getElementById("run-data");

export const run = embedded ? new EmbeddedRun(JSON.parse(embedded.textContent)) : new ServedRun();
