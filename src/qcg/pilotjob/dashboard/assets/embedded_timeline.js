// Rows of the timeline from the data of the page: attempts where it has them, else bins of a fixed length.

const PIXELS_FOR_ATTEMPT = 3; // a bin has two pixels

export function embeddedTimeline(timeline, { first, last, width, from, count, level }) {
  const lanes = timeline[level];
  const rows = lanes.slice(from, from + count).map((lane) => rowOfLane(lane, timeline, first, last, width));
  const short = (timeline.last - timeline.first) / (last - first);
  const stored = lanes.find((lane) => lane.busy)?.busy.length ?? Infinity;
  const note = stored < (width * short) / 8 ? "This file has no finer times; qcg-pm dashboard shows them." : "";
  return { first, last, lanes_total: lanes.length, rows, note };
}

function rowOfLane(lane, timeline, first, last, width) {
  const { node, core } = lane;
  if (!lane.attempts) return { node, core, ...resampled(lane, timeline, first, last, width) };
  const inside = lane.attempts.filter((one) => one.start < last && (one.end ?? timeline.last) > first);
  if (inside.length <= width / PIXELS_FOR_ATTEMPT) return { node, core, attempts: inside };
  return { node, core, ...binned(inside, timeline, first, last, width) };
}

function binned(attempts, timeline, first, last, width) {
  const step = (last - first) / width;
  const busy = new Array(width).fill(0);
  const counts = new Array(width).fill(0);
  const failures = new Array(width).fill(0);
  for (const attempt of attempts) {
    const end = attempt.end ?? timeline.last;
    const from = Math.max(0, Math.floor((attempt.start - first) / step));
    const to = Math.min(width - 1, Math.floor((end - first) / step));
    for (let bin = from; bin <= to; bin += 1) {
      busy[bin] += Math.max(0, Math.min(end, first + (bin + 1) * step) - Math.max(attempt.start, first + bin * step)) / step;
      counts[bin] += 1;
    }
    if (attempt.state === "FAILED" && end >= first && end < last) failures[Math.min(width - 1, Math.floor((end - first) / step))] += 1;
  }
  return { busy: busy.map((part) => Math.min(1, part)), counts, failures };
}

// Bins of the window from those of the whole run: each takes the mean of those under it.
function resampled(lane, timeline, first, last, width) {
  const length = (timeline.last - timeline.first) / lane.busy.length;
  const bins = Math.max(1, Math.min(width, Math.ceil((last - first) / length)));
  const step = (last - first) / bins;
  const busy = [];
  const counts = [];
  const failures = [];
  for (let bin = 0; bin < bins; bin += 1) {
    const from = Math.floor((first + bin * step - timeline.first) / length);
    const to = Math.max(from + 1, Math.round((first + (bin + 1) * step - timeline.first) / length));
    let [total, most, failed] = [0, 0, 0];
    for (let source = from; source < to; source += 1) {
      total += lane.busy[source] ?? 0;
      most += lane.counts[source] ?? 0;
      failed += lane.failures[source] ?? 0;
    }
    busy.push(total / (to - from));
    counts.push(most);
    failures.push(failed);
  }
  return { busy, counts, failures };
}
