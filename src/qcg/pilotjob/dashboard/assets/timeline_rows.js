// Rows of the timeline as the page uses them, and requests for them: one at a time, always for the newest window.
import { run } from "./data.js";

// A row of the server: `bins` are lists of the same length, `attempts` are there when they are few.
function rowOf(row, lane, first, last) {
  const plain = { lane, node: row.node, core: row.core ?? null, attempts: null, bins: null };
  if (row.attempts) plain.attempts = row.attempts;
  else plain.bins = { first, last, busy: row.busy, attempts: row.counts, failures: row.failures };
  return plain;
}

export class TimelineRows {
  rows = [];
  lanes = 0;
  bounds = null;
  error = null;
  #wanted = null;
  #asking = false;
  #changed;

  constructor(changed) {
    this.#changed = changed;
  }

  ask(parameters) {
    this.#wanted = parameters;
    if (!this.#asking) this.#askNext();
  }

  async #askNext() {
    this.#asking = true;
    while (this.#wanted) {
      const parameters = this.#wanted;
      this.#wanted = null;
      try {
        const answer = await run.timeline(parameters);
        this.lanes = answer.lanes_total;
        this.rows = answer.rows.map((row, index) => rowOf(row, parameters.from + index, answer.first, answer.last));
        this.note = answer.note ?? "";
        this.end = answer.end ?? null;
        this.error = null;
      } catch (error) {
        this.error = error.message;
      }
      this.#changed();
    }
    this.#asking = false;
  }

  get waiting() {
    return this.#asking;
  }

  // Attempts in a window, by row and start.
  attemptsIn(first, last) {
    return this.rows.flatMap((row) =>
      (row.attempts ?? []).filter((one) => one.start < last && (one.end ?? Infinity) > first).map((attempt) => ({ row, attempt })),
    );
  }

  // Whether there is anything to see in the rows.
  some() {
    return this.rows.some((row) => row.attempts?.length || row.bins?.attempts.some(Boolean) || row.bins?.busy.some(Boolean));
  }

  exact() {
    return this.rows.some((row) => row.attempts?.length);
  }
}
