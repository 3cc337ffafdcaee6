// Numbers, times and sizes as people read them.

export const STATES = ["SUCCEED", "FAILED", "CANCELED", "OMITTED", "EXECUTING", "SCHEDULED", "QUEUED"];
// The symbols of the terminal view, as in report/state_colours.py: tests compare the two.
export const SYMBOLS = { QUEUED: "·", SCHEDULED: "◦", EXECUTING: "▸", SUCCEED: "✓", FAILED: "✗", CANCELED: "⊘", OMITTED: "–" };
export const FINAL = new Set(["SUCCEED", "FAILED", "CANCELED", "OMITTED"]);

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(number) {
  return grouped.format(number);
}

export function plural(number, one, many = one + "s") {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function percent(part, digits = 0) {
  if (part === null || part === undefined || !isFinite(part)) return "–";
  return (100 * part).toFixed(digits) + " %";
}

export function rate(perSecond) {
  if (perSecond >= 10) return `${count(perSecond)}/s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)}/s`;
  if (perSecond * 60 >= 1) return `${(perSecond * 60).toFixed(perSecond * 60 < 10 ? 1 : 0)}/min`;
  return perSecond > 0 ? `${(perSecond * 3600).toFixed(1)}/h` : "0/s";
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s < 0.001) return s === 0 ? "0 s" : sign + Math.round(s * 1e6) + " µs";
  if (s < 1) return sign + Math.round(s * 1000) + " ms";
  if (s < 10) return sign + s.toFixed(1) + " s";
  if (s < 60) return sign + Math.round(s) + " s";
  if (s < 3600) return sign + two(s, 60, "min", 1, "s");
  if (s < 86400) return sign + two(s, 3600, "h", 60, "min");
  return sign + two(s, 86400, "d", 3600, "h");
}

export function bytes(number) {
  if (!number) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  const value = number / 2 ** (10 * power);
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

function two(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

function pad(number) {
  return String(number).padStart(2, "0");
}

// Rounded: a date cuts off what is less than a millisecond, and most decimal fractions are stored a little too small.
function dateOf(at) {
  return new Date(Math.round(at * 1000));
}

// A time of the day; with the date when it is not the day of the reference.
export function clock(at, reference = Date.now() / 1000, precise = false) {
  if (at === null || at === undefined) return "–";
  const date = dateOf(at);
  let text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  if (precise) text += "." + String(date.getMilliseconds()).padStart(3, "0");
  return new Date(reference * 1000).toDateString() === date.toDateString() ? text : `${day(date)} ${text}`;
}

export function fullTime(at) {
  if (at === null || at === undefined) return "–";
  const date = dateOf(at);
  return `${day(date)} ${clock(at, at)}`;
}

function day(date) {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];

// Round times inside a window, at most `most` of them, with labels.
export function timeTicks(first, last, most) {
  const step = STEPS.find((candidate) => (last - first) / candidate <= most) ?? STEPS.at(-1);
  const offset = new Date(first * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let at = Math.ceil((first - offset) / step) * step + offset; at <= last; at += step) ticks.push(at);
  return ticks.map((at) => ({ at, label: tickLabel(at, step) }));
}

function tickLabel(at, step) {
  const date = dateOf(at);
  if (step >= 86400) return `${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const minutes = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  if (step >= 60) return minutes === "00:00" ? `${pad(date.getMonth() + 1)}-${pad(date.getDate())}` : minutes;
  if (step >= 1) return `${minutes}:${pad(date.getSeconds())}`;
  return `${pad(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// Numbers of units by state, in the order of states.
export function byState(counts) {
  return STATES.filter((state) => counts[state]).map((state) => [state, counts[state]]);
}
