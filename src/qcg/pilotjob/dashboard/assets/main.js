// The frame of the page: routes in the address after `#`, colours, the title.
import { allocationsView } from "./allocations.js";
import { analysisView } from "./analysis.js";
import { run } from "./data.js";
import { h, hideTooltip } from "./dom.js";
import { fullTime } from "./format.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { connect, live, onSummary } from "./live.js";
import { nodesView } from "./nodes.js";
import { overviewView } from "./overview.js";
import { timelineView } from "./timeline.js";

const VIEWS = {
  overview: ["Overview", overviewView],
  timeline: ["Timeline", timelineView],
  jobs: ["Jobs", jobsView],
  job: [null, jobView],
  nodes: ["Nodes", nodesView],
  analysis: ["Analysis", analysisView],
  allocations: ["Allocations", allocationsView],
};

let shownView = null;

function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/");
  return { name: VIEWS[name] ? name : "overview", argument: decoded(rest.join("/")), parameters: new URLSearchParams(search) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  if (location.hash === "#main") return;
  const { name, argument, parameters } = route();
  hideTooltip();
  shownView?.close?.();
  const main = document.getElementById("main");
  const [title, build] = VIEWS[name];
  shownView = build({ argument, parameters });
  main.replaceChildren(shownView.element);
  main.dataset.view = name;
  document.title = `${title ?? argument} – ${live.summary?.run ?? "run"} – QCG-PilotJob`;
  for (const link of document.querySelectorAll("#views a")) {
    const current = link.dataset.view === (name === "job" ? "jobs" : name);
    current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  shownView.update?.(live.summary);
}

function showFrame(summary) {
  document.getElementById("run-name").textContent = h("b", {}, summary.run || "run").textContent;
  const parts = [summary.directory];
  if (summary.host) parts.push(`manager on ${summary.host}`);
  if (!run.live) parts.push(`as of ${fullTime(summary.at)}`);
  const place = document.getElementById("run-place");
  place.replaceChildren(h("span.own-text", { title: summary.directory }, parts.join(" · ")));
}

const THEMES = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function setTheme(theme) {
  const button = document.getElementById("theme-button");
  const [symbol, words] = THEMES[theme] ?? THEMES[""];
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.textContent = symbol;
  button.setAttribute("aria-label", `Colours: ${words}`);
  button.title = `Colours: ${words}`;
  remember("qcg-pm-theme", theme);
  document.dispatchEvent(new Event("themechange"));
}

// Storage is missing where cookies are forbidden, and for some pages of files.
function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    return;
  }
}

function remembered(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function start() {
  const views = Object.entries(VIEWS).filter(([, [title]]) => title);
  document.getElementById("views").replaceChildren(
    ...views.map(([name, [title]]) => h("a", { href: `#/${name}`, "data-view": name }, title)),
  );
  setTheme(remembered("qcg-pm-theme"));
  document.getElementById("theme-button").addEventListener("click", () => {
    const themes = Object.keys(THEMES);
    setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
  document.querySelector(".skip-link").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  let started = false;
  onSummary((summary) => {
    showFrame(summary);
    if (!started) {
      started = true;
      addEventListener("hashchange", () => {
        show();
        scrollTo(0, 0);
      });
      show();
    } else {
      shownView?.update?.(summary);
    }
  });
  connect();
}

start();
