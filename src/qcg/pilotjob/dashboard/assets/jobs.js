// The table of jobs, or of the iterations of a job: search, states, order, pages.
import { stateBar } from "./charts.js";
import { run } from "./data.js";
import { h, stateBadge } from "./dom.js";
import { STATES, byState, bytes, clock, count, duration, fullTime, percent, plural } from "./format.js";
import { live } from "./live.js";
import { jobAddress } from "./overview.js";

const PAGE = 100;
const COLUMNS = [
  ["name", "Name"],
  ["state", "State"],
  ["submitted", "Submitted"],
  ["started", "Started"],
  ["duration", "Took"],
  [null, "Cores"],
  [null, "CPU"],
  ["memory", "Memory"],
];

class Jobs {
  constructor(parameters) {
    this.query = {
      search: parameters.get("search") ?? "",
      state: parameters.getAll("state"),
      job: parameters.get("job") ?? "",
      sort: parameters.get("sort") ?? "submitted",
      descending: parameters.get("descending") === "true",
      first: Math.max(0, Number(parameters.get("first")) || 0),
    };
    this.#build();
  }

  #build() {
    this.search = h("input", { type: "search", placeholder: "Search names, * and ? allowed", "aria-label": "Search jobs by name", value: this.query.search });
    this.search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#change({ search: this.search.value, first: 0 }), 200);
    });
    this.chips = STATES.map((state) =>
      h("button.chip", { type: "button", "data-state": state, "aria-pressed": String(this.query.state.includes(state)), onclick: () => this.#toggle(state) },
        h("span.dot", { "aria-hidden": "true" }), state),
    );
    this.head = h("tr");
    this.body = h("tbody");
    this.total = h("p.muted.small", { role: "status" });
    this.pages = h("div.toolbar.pages");
    const title = this.query.job
      ? h("h2", {}, "Iterations of ", h("a.own-text", { href: jobAddress(this.query.job) }, this.query.job))
      : h("h2", {}, "Jobs");
    this.element = h(
      "section.panel",
      { "aria-label": this.query.job ? "Iterations" : "Jobs" },
      h("div.panel-head", {}, title, this.total),
      h("div.toolbar.filters", {}, h("div.grow", {}, this.search), h("div.chips", { role: "group", "aria-label": "States" }, this.chips)),
      h("div.table-scroll", {}, h("table.jobs", {}, h("caption.hidden-text", {}, "Jobs"), h("thead", {}, this.head), this.body)),
      this.pages,
    );
    this.body.addEventListener("keydown", (event) => moveInTable(event, this.body));
    this.#showHead();
  }

  #showHead() {
    this.head.replaceChildren(
      ...COLUMNS.map(([sort, name]) => {
        const sorted = sort && this.query.sort === sort;
        const order = sorted ? (this.query.descending ? "descending" : "ascending") : null;
        const arrow = sorted ? (this.query.descending ? " ↓" : " ↑") : "";
        return h("th", { scope: "col", "aria-sort": order, class: NUMBERS.has(name) ? "number" : null },
          sort ? h("button", { type: "button", onclick: () => this.#sort(sort) }, name + arrow) : name);
      }),
    );
  }

  #sort(sort) {
    const descending = this.query.sort === sort ? !this.query.descending : sort !== "name" && sort !== "state";
    const focused = [...this.head.querySelectorAll("button")].indexOf(document.activeElement);
    this.#change({ sort, descending, first: 0 });
    this.#showHead();
    this.head.querySelectorAll("button")[focused]?.focus();
  }

  #toggle(state) {
    const states = this.query.state.includes(state) ? this.query.state.filter((one) => one !== state) : [...this.query.state, state];
    this.chips.forEach((chip) => chip.setAttribute("aria-pressed", String(states.includes(chip.dataset.state))));
    this.#change({ state: states, first: 0 });
  }

  #change(changes) {
    Object.assign(this.query, changes);
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(this.query)) {
      if (name === "sort" && value === "submitted") continue;
      for (const one of Array.isArray(value) ? value : [value]) if (one) search.append(name, one);
    }
    history.replaceState(null, "", search.size ? `#/jobs?${search}` : "#/jobs");
    this.load();
  }

  // Reads the page. A live run brings several summaries a second: the table is read again at most every second.
  update() {
    if (this.loading) this.again = true;
    else this.load();
  }

  async load() {
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    const began = performance.now();
    try {
      this.#show(await run.jobs({ ...this.query, limit: PAGE }, loading.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.total.replaceChildren(h("span", {}, error.message));
    }
    const rest = Math.max(1000, (performance.now() - began) * 10);
    this.pause = setTimeout(() => {
      if (this.loading === loading) this.loading = null;
      if (this.again) {
        this.again = false;
        this.load();
      }
    }, rest);
  }

  #show(page) {
    const { first } = this.query;
    const last = Math.min(first + page.lines.length, page.total);
    const what = this.query.job ? "iteration" : "job";
    const text = page.total ? `${count(first + 1)}–${count(last)} of ${plural(page.total, what)}` : `no ${what} matches`;
    this.total.replaceChildren(h("span", {}, text), page.note ? h("span", {}, ` · ${page.note}`) : "");
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    this.body.replaceChildren(...page.lines.map((line) => row(line)));
    if (focused !== undefined) [...this.body.rows].find((one) => one.dataset.name === focused)?.querySelector("a")?.focus({ preventScroll: true });
    const turn = (label, to) => h("button.button", { type: "button", disabled: to === null, onclick: () => this.#change({ first: to }) }, label);
    this.pages.replaceChildren(
      ...(page.total > PAGE
        ? [
            turn("first", first > 0 ? 0 : null),
            turn("previous", first > 0 ? Math.max(0, first - PAGE) : null),
            turn("next", last < page.total ? first + PAGE : null),
            turn("last", last < page.total ? Math.floor((page.total - 1) / PAGE) * PAGE : null),
          ]
        : []),
    );
    this.element.dataset.ready = "true";
  }

  close() {
    this.loading?.abort();
    clearTimeout(this.pause);
    clearTimeout(this.typing);
  }
}

const NUMBERS = new Set(["Took", "CPU", "Memory"]);

function row(line) {
  const iterated = Object.keys(line.iterations ?? {}).length > 0;
  const reference = live.summary?.at;
  const cell = (label, ...content) => h(NUMBERS.has(label) ? "td.number" : "td", { "data-label": label }, content);
  return h(
    "tr",
    { "data-name": line.name, "data-state": line.state },
    cell("Name", h("a.job-name", { href: jobAddress(line.name) }, line.name), iterated ? iterationBar(line) : null, line.message ? h("p.muted.small.message-line", { title: line.message }, line.message) : null),
    cell("State", stateBadge(line.state), line.attempts > 1 ? h("span.muted.small", {}, ` ${line.attempts} attempts`) : null),
    cell("Submitted", h("time", { title: fullTime(line.submitted) }, clock(line.submitted, reference))),
    cell("Started", line.started === null ? "–" : h("time", { title: fullTime(line.started) }, clock(line.started, reference))),
    cell("Took", duration(tookOf(line, reference))),
    cell("Cores", h("span.grant", { title: line.grant }, line.grant || "–")),
    cell("CPU", line.cpu_efficiency === null ? "–" : percent(line.cpu_efficiency)),
    cell("Memory", bytes(line.max_memory)),
  );
}

export function tookOf(line, now) {
  if (line.started === null) return null;
  if (line.ended !== null) return line.ended - line.started;
  return line.state === "EXECUTING" && now ? now - line.started : null;
}

function iterationBar(line) {
  const counts = byState(line.iterations);
  const total = counts.reduce((all, [, number]) => all + number, 0);
  return h("span.iterations", {}, stateBar(counts, "small"), h("a.small", { href: `#/jobs?job=${encodeURIComponent(line.name)}` }, plural(total, "iteration")));
}

// Arrow keys move between the rows of a table.
export function moveInTable(event, body) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const current = event.target.closest("tr");
  if (!step || !current || event.ctrlKey || event.altKey) return;
  const next = step > 0 ? current.nextElementSibling : current.previousElementSibling;
  const link = next && body.contains(next) && next.querySelector("a");
  if (!link) return;
  event.preventDefault();
  link.focus();
}

export function jobsView({ parameters }) {
  return new Jobs(parameters);
}
