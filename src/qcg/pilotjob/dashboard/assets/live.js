// Keeps the summary current: server-sent events, long polling where a proxy swallows them, and a mark that says so.
import { run } from "./data.js";
import { FINAL } from "./format.js";
import { printable } from "./printable.js";

const SILENCE = 15000;
const RETRY = 2000;
const MOST_RETRY = 15000;
const PATIENCE = 3000;

export const live = { summary: null, control: false, state: "connecting" };
const listeners = new Set();

export function onSummary(listener) {
  listeners.add(listener);
  if (live.summary) listener(live.summary);
  return () => listeners.delete(listener);
}

export function connect() {
  if (!run.live) {
    run.summary().then(receive);
    return;
  }
  readFirst();
}

async function readFirst() {
  for (let wait = RETRY; !live.summary; wait = Math.min(wait * 1.5, MOST_RETRY)) {
    try {
      receive(await run.summary());
    } catch (error) {
      mark("reconnecting", error.message);
      await pause(wait);
    }
  }
  listen();
}

function receive(summary) {
  if (!summary) return;
  if ("control" in summary) live.control = summary.control;
  live.summary = summary;
  mark(...stateOf(summary));
  for (const listener of [...listeners]) listener(summary);
}

function stateOf(summary) {
  if (summary.alive) return run.live ? ["live", "live"] : ["ended", "while it ran"];
  const final = Object.keys(summary.units).length > 0 && Object.keys(summary.units).every((state) => FINAL.has(state));
  return summary.ended !== null || final ? ["ended", "run has ended"] : ["stopped", "no manager"];
}

const EXPLANATIONS = {
  live: "The page changes as the run does.",
  ended: "Every job is final.",
  stopped: "No manager runs, and some jobs are not final. qcg-pm run --resume continues with the run.",
};

function mark(state, text) {
  live.state = state;
  explain(state === "reconnecting" ? text : "");
  const element = document.getElementById("live-mark");
  const shown = state === "reconnecting" ? "reconnecting" : text;
  if (element.dataset.state === state && element.textContent === shown) return;
  element.dataset.state = state;
  element.textContent = shown;
  element.title = state === "reconnecting" ? text : (EXPLANATIONS[state] ?? "");
}

// Why there are no news, once that lasts: a connection that breaks for a moment is not worth a sentence.
let explaining = null;
let explanation = "";

function explain(reason) {
  const note = document.getElementById("connection-note");
  explanation = reason && live.summary ? `${reason} The page shows what it knew last.` : reason;
  if (!reason) {
    clearTimeout(explaining);
    explaining = null;
    note.hidden = true;
  } else if (note.hidden) {
    explaining ??= setTimeout(() => {
      note.textContent = printable(explanation);
      note.hidden = false;
    }, PATIENCE);
  } else if (note.textContent !== printable(explanation)) note.textContent = printable(explanation);
}

let failures = 0;

function listen() {
  const events = run.events();
  let over = false;
  let silence = setTimeout(probe, SILENCE);
  function restartTimer() {
    clearTimeout(silence);
    silence = setTimeout(probe, SILENCE);
  }
  // No events: either nothing happens or a proxy holds them back; poll to find out.
  async function probe() {
    try {
      const summary = await run.summary();
      if (over) return;
      if (changed(summary, live.summary)) {
        failures += 1;
        fail("Events do not arrive; asking instead.");
      } else restartTimer();
      receive(summary);
    } catch (error) {
      fail(error.message);
    }
  }
  function fail(reason) {
    if (over) return;
    over = true;
    clearTimeout(silence);
    events.close();
    failures += 1;
    mark("reconnecting", reason);
    failures >= 2 ? pollForAWhile() : setTimeout(listen, RETRY);
  }
  events.addEventListener("open", restartTimer);
  events.addEventListener("summary", (event) => {
    restartTimer();
    failures = 0;
    receive(JSON.parse(event.data));
  });
  events.addEventListener("error", () => fail("The connection to the dashboard broke."));
}

function changed(one, other) {
  return JSON.stringify([one.units, one.alive]) !== JSON.stringify([other.units, other.alive]);
}

// Long polling. Every minute events are tried again.
async function pollForAWhile() {
  const until = Date.now() + 60000;
  for (let wait = RETRY; Date.now() < until; ) {
    try {
      const next = await run.poll(live.summary.at);
      receive(next ?? live.summary);
      wait = RETRY;
    } catch (error) {
      mark("reconnecting", error.message);
      await pause(wait);
      wait = Math.min(wait * 1.5, MOST_RETRY);
    }
  }
  failures = 1;
  listen();
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
