// Pointers and keys of the timeline.
import { gutterOf } from "./timeline_drawing.js";
import { hideTooltip } from "./dom.js";

const CLICK = 4; // pixels that a click may move

export function watchPointers(canvas, timeline) {
  const held = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("wheel", (event) => {
    const { x } = place(event);
    const lines = event.deltaMode === 1 ? 20 : 1;
    const seconds = (timeline.window[1] - timeline.window[0]) / timeline.plotWidth;
    if (x < gutterOf(timeline.width)) {
      if (timeline.scrollBy(event.deltaY * lines)) event.preventDefault();
      return;
    }
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.move((event.deltaX || event.deltaY) * lines * seconds);
    else timeline.zoom(Math.min(4, Math.max(0.25, 1.0025 ** (event.deltaY * lines))), timeline.timeAt(x));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const at = place(event);
    held.set(event.pointerId, at);
    moved = 0;
    if (event.shiftKey) timeline.range = [at.x, at.x];
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = held.get(event.pointerId);
    if (!before) {
      timeline.hover(timeline.at(at.x, at.y), event.clientX, event.clientY);
      return;
    }
    moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (timeline.range) {
      timeline.range[1] = at.x;
      timeline.draw();
    } else if (held.size === 2) pinch(event.pointerId, at);
    else if (moved > CLICK) {
      hideTooltip();
      const seconds = (timeline.window[1] - timeline.window[0]) / timeline.plotWidth;
      timeline.move((before.x - at.x) * seconds);
      // At the last core the page itself moves on: a finger has no wheel.
      if (!timeline.scrollBy(before.y - at.y) && event.pointerType === "touch") scrollBy(0, before.y - at.y);
    }
    held.set(event.pointerId, place(event));
  });

  function pinch(id, at) {
    const other = [...held].find(([pointer]) => pointer !== id)[1];
    const before = Math.abs(held.get(id).x - other.x);
    const now = Math.abs(at.x - other.x);
    if (before > 8 && now > 8) timeline.zoom(before / now, timeline.timeAt((at.x + other.x) / 2));
  }

  canvas.addEventListener("pointerup", (event) => {
    const at = place(event);
    held.delete(event.pointerId);
    if (timeline.range) {
      const [one, other] = timeline.range.map((x) => timeline.timeAt(x)).sort((a, b) => a - b);
      timeline.range = null;
      if (moved > CLICK) timeline.show(one, other);
    } else if (moved <= CLICK) click(timeline.at(at.x, at.y), at);
    timeline.draw();
  });

  function click(found, at) {
    if (found?.attempt) timeline.open(found);
    else if (found) timeline.zoom(0.25, timeline.timeAt(at.x));
  }

  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => timeline.hover(null));
}

export function watchKeys(canvas, timeline) {
  const part = (fraction) => (timeline.window[1] - timeline.window[0]) * fraction;
  const actions = {
    ArrowLeft: () => timeline.move(-part(0.15)),
    ArrowRight: () => timeline.move(part(0.15)),
    ArrowUp: () => timeline.scrollBy(-3 * timeline.rowHeight),
    ArrowDown: () => timeline.scrollBy(3 * timeline.rowHeight),
    PageUp: () => timeline.scrollBy(-timeline.height / 1.5),
    PageDown: () => timeline.scrollBy(timeline.height / 1.5),
    "+": () => timeline.zoom(0.5),
    "=": () => timeline.zoom(0.5),
    "-": () => timeline.zoom(2),
    0: () => timeline.showAll(),
    Home: () => timeline.showAll(),
    n: () => timeline.select(1),
    p: () => timeline.select(-1),
    Enter: () => timeline.selected && timeline.open({ attempt: timeline.selected }),
    Escape: () => {
      timeline.selected = null;
      timeline.draw();
    },
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !timeline.window || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
}
