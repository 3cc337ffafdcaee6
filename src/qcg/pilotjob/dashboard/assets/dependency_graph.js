// The jobs around a job and what they wait for, as a drawing: jobs on the left start first.
import { svg } from "./dom.js";
import { SYMBOLS } from "./format.js";
import { printable } from "./printable.js";

const WIDTH = 168;
const HEIGHT = 34;
const GAP_X = 56;
const GAP_Y = 12;
const MOST_IN_COLUMN = 10;

// The column of each job: one more than the last column of the jobs it waits for.
export function columnsOf(names, edges) {
  const column = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    let moved = false;
    for (const { job, on } of edges) {
      if (column.get(job) <= column.get(on)) {
        column.set(job, column.get(on) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return column;
}

// What the job waits for, directly or not, and what waits for it. Others that wait for the same jobs are left out.
export function lineOf(center, edges) {
  const found = new Set([center]);
  for (const [from, to] of [["job", "on"], ["on", "job"]]) {
    const waiting = [center];
    for (const name of waiting) {
      for (const edge of edges) {
        if (edge[from] !== name || found.has(edge[to])) continue;
        found.add(edge[to]);
        waiting.push(edge[to]);
      }
    }
  }
  return found;
}

// An iteration is shown as its job.
function withoutIterations({ nodes, edges }, name) {
  const known = new Set(nodes.map((node) => node.name));
  const jobOf = (text) => (known.has(text) ? text : text.split(":", 1)[0]);
  const plain = edges.map(({ job, on, kind }) => ({ job: jobOf(job), on: jobOf(on), kind }));
  return { center: jobOf(name), edges: plain.filter(({ job, on }) => known.has(job) && known.has(on)) };
}

export function drawGraph(graph, name, addressOf) {
  const { center, edges } = withoutIterations(graph, name);
  const line = lineOf(center, edges);
  const all = graph.nodes.filter((node) => line.has(node.name));
  const columns = columnsOf(all.map((node) => node.name), edges.filter(({ job, on }) => line.has(job) && line.has(on)));
  const { nodes, left } = fold(all, columns, center);
  const names = nodes.map((node) => node.name);
  const shown = new Set(names);
  const inside = edges.filter(({ job, on }) => shown.has(job) && shown.has(on));
  const lowest = Math.min(...columns.values());
  const byColumn = [];
  for (const name of names) (byColumn[columns.get(name) - lowest] ??= []).push(name);
  const places = place(byColumn, inside);
  const width = byColumn.length * (WIDTH + GAP_X) - GAP_X + 4;
  const rows = Math.max(...byColumn.map((one, column) => one.length + (left.has(column + lowest) ? 1 : 0)));
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y + 4;
  const root = svg("svg.dependency-graph", { viewBox: `-2 -2 ${width} ${height}`, width, height, role: "group", "aria-label": "Dependencies" });
  for (const edge of inside) root.append(drawEdge(edge, places));
  for (const node of nodes) root.append(drawNode(node, places.get(node.name), node.name === center, addressOf));
  for (const [column, number] of left) {
    const y = places.bottom[column - lowest] + HEIGHT / 2 + 4;
    root.append(svg("text.more", { x: (column - lowest) * (WIDTH + GAP_X) + 27, y }, `and ${number} more`));
  }
  return root;
}

// Of a column with many jobs the first ones are shown, and how many more there are.
function fold(nodes, columns, center) {
  const seen = new Map();
  const left = new Map();
  const kept = nodes.filter(({ name }) => {
    const column = columns.get(name);
    seen.set(column, (seen.get(column) ?? 0) + 1);
    if (seen.get(column) <= MOST_IN_COLUMN || name === center) return true;
    left.set(column, (left.get(column) ?? 0) + 1);
    return false;
  });
  return { nodes: kept, left };
}

// Jobs of a column are in the order of the middles of what they wait for, so that few lines cross.
function place(byColumn, edges) {
  const places = new Map();
  places.bottom = [];
  const tallest = Math.max(...byColumn.map((names) => names.length));
  byColumn.forEach((names, column) => {
    const middle = (name) => {
      const before = edges.filter(({ job, on }) => job === name && places.has(on)).map(({ on }) => places.get(on).y);
      return before.length ? before.reduce((total, y) => total + y, 0) / before.length : 0;
    };
    const ordered = column ? [...names].sort((one, other) => middle(one) - middle(other)) : names;
    const top = ((tallest - names.length) * (HEIGHT + GAP_Y)) / 2;
    ordered.forEach((name, index) => places.set(name, { x: column * (WIDTH + GAP_X), y: top + index * (HEIGHT + GAP_Y) }));
    places.bottom[column] = top + names.length * (HEIGHT + GAP_Y);
  });
  return places;
}

function drawEdge({ job, on, kind }, places) {
  const from = places.get(on);
  const to = places.get(job);
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x - 6, to.y + HEIGHT / 2];
  const bend = Math.max(24, (x2 - x1) / 2);
  const group = svg("g.edge", { "data-kind": kind });
  group.append(svg("title", {}, `${job} waits for ${on} (${kind})`));
  group.append(svg("path", { d: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` }));
  group.append(svg("path.arrow", { d: `M${x2},${y2 - 4}L${x2 + 6},${y2}L${x2},${y2 + 4}Z` }));
  return group;
}

function drawNode({ name, state }, { x, y }, isCenter, addressOf) {
  const link = svg(isCenter ? "a.node.center" : "a.node", { href: addressOf(name), "data-state": state, "aria-label": `${name}, ${state}` });
  link.append(svg("title", {}, `${name}: ${state}`));
  link.append(svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 7 }));
  link.append(svg("text.symbol", { x: x + 15, y: y + HEIGHT / 2 + 4.5, "text-anchor": "middle", "aria-hidden": "true" }, SYMBOLS[state] ?? "?"));
  const shown = printable(name);
  link.append(svg("text", { x: x + 27, y: y + HEIGHT / 2 + 4.5 }, shown.length > 19 ? shown.slice(0, 18) + "…" : shown));
  return link;
}
