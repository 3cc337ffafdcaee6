"""The Gantt chart of a run: a row for each core or node, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.picture import SHADES, Area, Cells, Picture, Rect, Shape, Text, shortened, text_width
from qcg.pilotjob.report.time_axis import in_words, ticks
from qcg.pilotjob.report.timeline import Bar, Level, Timeline, TimelineRow

WIDTH = 1280.0
MARGIN = 28.0
HEAD = 74.0
CURVE = 44.0
AXIS = 26.0
FOOT = 44.0
NODE_GAP = 6.0
MOST_CORES = 192
"""Runs with more cores are drawn with a row for each node."""
MOST_ROWS = 480
MOST_CELLS = 1 << 15
"""The most bins of all rows together."""
WIDEST_LABEL = 150.0
HEIGHTS = ((24, 22.0), (48, 17.0), (96, 12.0), (192, 8.0), (MOST_ROWS, 5.0))
"""Height of a row up to a number of rows."""
SMALL = 10.5


class _Frame(NamedTuple):
    """Position of the rows, and the time range they show."""

    left: float
    right: float
    first: float
    last: float

    def x(self, at: float) -> float:
        part = (at - self.first) / (self.last - self.first)
        return self.left + min(max(part, 0.0), 1.0) * (self.right - self.left)


class _Placed(NamedTuple):
    row: TimelineRow
    y: float


def gantt(timeline: Timeline, run: str) -> Picture:
    """The chart of a whole run. `run`: its name."""
    run = printable(run)
    level: Level = "core" if timeline.lanes("core") <= MOST_CORES else "node"
    total = timeline.lanes(level)
    number = min(total, MOST_ROWS)
    height = next((height for most, height in HEIGHTS if number <= most), HEIGHTS[-1][1])
    last = timeline.last if timeline.last > timeline.first else timeline.first + 1.0
    last += (last - timeline.first) * 0.004  # the last end is seen
    labels = [printable(row.node) for row in timeline.rows(timeline.first, last, 1, slice(0, number), "node")]
    gutter = min(max([text_width(label, 12) for label in labels], default=0.0), WIDEST_LABEL) + 34.0
    frame = _Frame(MARGIN + gutter, WIDTH - MARGIN, timeline.first, last)
    width = min(int(frame.right - frame.left), MOST_CELLS // max(number, 1))
    rows = timeline.rows(frame.first, frame.last, width, slice(0, number), level)
    placed, bottom = _place(rows, height, HEAD + CURVE + AXIS)
    shapes = [
        *_head(timeline, run),
        *_bands(placed, frame, height),
        *_axis(frame, HEAD + CURVE, bottom),
        *_curve(timeline, frame),
        *_labels(placed, frame, height),
    ]
    for one in placed:
        shapes += _row(one, frame, height)
    if total > number:
        shapes.append(Text(MARGIN, bottom + 18, f"… and {total - number} more nodes", 12, "muted"))
        bottom += 18
    shapes += _legend(timeline, rows, bottom + 30)
    title = f"Gantt chart of run {run}: {pluralize(timeline.attempts, 'attempt')}"
    return Picture(WIDTH, bottom + FOOT, title, tuple(shapes))


def _place(rows: list[TimelineRow], height: float, top: float) -> tuple[list[_Placed], float]:
    """The rows with their upper edges, with a gap between nodes, and the lower edge of the last one."""
    placed: list[_Placed] = []
    y = top
    for _, group in groupby(rows, key=lambda row: row.node if row.core is not None else None):
        if placed:
            y += NODE_GAP
        for row in group:
            placed.append(_Placed(row, y))
            y += height
    return placed, y


def _head(timeline: Timeline, run: str) -> Iterator[Shape]:
    yield Text(MARGIN, MARGIN + 12, shortened(run, 18, WIDTH - 2 * MARGIN), 18, "text", bold=True)
    begin = datetime.fromtimestamp(timeline.first)
    cores = pluralize(timeline.lanes("core"), "core")
    words = [
        f"{begin:%Y-%m-%d %H:%M:%S}",
        in_words(timeline.last - timeline.first),
        f"{pluralize(timeline.attempts, 'attempt')} on {cores} of {pluralize(timeline.lanes('node'), 'node')}",
    ]
    if timeline.attempts:
        words.append(f"{timeline.utilisation(timeline.first, timeline.last, 1)[0]:.0%} of the cores busy")
    yield Text(MARGIN, MARGIN + 34, "  ·  ".join(words), 12.5, "muted")


def _axis(frame: _Frame, y: float, bottom: float) -> Iterator[Shape]:
    room = 110.0
    for tick in ticks(frame.first, frame.last, int((frame.right - frame.left) / room)):
        x = frame.x(tick.at)
        yield Rect(x, y - CURVE, 1, bottom - y + CURVE, "line")
        if x + text_width(tick.label, SMALL) / 2 < WIDTH - 4:
            yield Text(x, y + 16, tick.label, SMALL, "muted", "middle")


def _curve(timeline: Timeline, frame: _Frame) -> Iterator[Shape]:
    """Utilisation over time, above the rows."""
    top, base = HEAD + 4, HEAD + CURVE
    bins = 240
    found = timeline.utilisation(frame.first, timeline.last, bins) if timeline.attempts else []
    right = frame.x(timeline.last)
    step = (right - frame.left) / bins
    points = []
    for number, part in enumerate(found):
        y = base - part * (base - top)
        points += [(frame.left + number * step, y), (frame.left + (number + 1) * step, y)]
    if points:
        yield Area(tuple(points), base, "curve")
    yield Rect(frame.left, base, frame.right - frame.left, 1, "line")
    yield Text(frame.left - 10, top + 8, "100 %", 9.5, "muted", "end")
    yield Text(frame.left - 10, base - 1, "busy", 9.5, "muted", "end")


def _bands(placed: list[_Placed], frame: _Frame, height: float) -> Iterator[Shape]:
    """A light ground under each row: idle time is not empty paper."""
    gap = _gap(height)
    for one in placed:
        yield Rect(frame.left, one.y, frame.right - frame.left, height - gap, "band")


def _labels(placed: list[_Placed], frame: _Frame, height: float) -> Iterator[Shape]:
    if placed and placed[0].row.core is None:
        every = max(round(12 / height), 1)
        for one in placed[::every]:
            name = shortened(printable(one.row.node), 11, WIDEST_LABEL)
            yield Text(frame.left - 10, one.y + height / 2 + 4, name, 11, "text", "end")
        return
    for node, group in groupby(placed, key=lambda one: one.row.node):
        members = list(group)
        middle = (members[0].y + members[-1].y + height) / 2
        name = shortened(printable(node), 12, WIDEST_LABEL)
        yield Text(MARGIN, min(middle, members[0].y + 60) + 4, name, 12, "text", bold=True)
        if height >= 8:
            size = min(SMALL, height - 1)
            for one in members:
                yield Text(frame.left - 10, one.y + height / 2 + size * 0.33, str(one.row.core), size, "muted", "end")


def _row(one: _Placed, frame: _Frame, height: float) -> Iterator[Shape]:
    tall = height - _gap(height)
    if one.row.attempts is not None:
        for bar in one.row.attempts:
            yield from _bar(bar, one.y, tall, frame)
    elif one.row.busy is not None:
        yield from _cells(one.row, one.y, tall, frame)


def _bar(bar: Bar, y: float, tall: float, frame: _Frame) -> Iterator[Shape]:
    end = frame.last if bar.end is None else bar.end
    left, right = frame.x(bar.start), frame.x(end)
    wide = right - left
    # A thin line between neighbours shows where one ends and the next begins.
    wide = max(wide - (0.8 if wide > 3 else 0.0), 0.8)
    name = printable(bar.name)
    attempt = f", attempt {bar.attempt}" if bar.attempt > 1 else ""
    title = f"{name}{attempt}: {bar.state}, {in_words(end - bar.start)}"
    yield Rect(left, y, wide, tall, bar.state, min(2.5, wide / 3), title)
    if bar.state == State.FAILED.name:
        yield _failure_mark(left, y, wide, tall)
    if tall >= 13 and (text := shortened(name, SMALL, wide - 9)) and len(text) > 2:
        yield Text(left + 5, y + tall / 2 + 3.7, text, SMALL, "page")


def _failure_mark(left: float, y: float, wide: float, tall: float) -> Rect:
    """A line along the lower edge of a bar marks a failure without colour."""
    high = max(1.0, tall * 0.12)
    return Rect(left, y + tall - 2 * high, wide, high, "page")


def _cells(row: TimelineRow, y: float, tall: float, frame: _Frame) -> Iterator[Shape]:
    """Bins, grouped by shade, and failures in front of them."""
    assert row.busy is not None
    assert row.counts is not None
    assert row.failures is not None
    step = (frame.right - frame.left) / len(row.busy)
    shades = [round(busy * SHADES) if count else -1 for busy, count in zip(row.busy, row.counts, strict=True)]
    runs: dict[int, list[tuple[float, float]]] = {}
    at = 0
    for shade, group in groupby(shades):
        length = len(list(group))
        if shade >= 0:
            runs.setdefault(shade, []).append((frame.left + at * step, frame.left + (at + length) * step))
        at += length
    for shade, edges in sorted(runs.items()):
        yield Cells(y, tall, f"busy{shade}", tuple(edges))
    yield from _failures(row.failures, row.counts, y, tall, frame)


def _failures(failures: list[int], counts: list[int], y: float, tall: float, frame: _Frame) -> Iterator[Shape]:
    """Marks at the bottom of a row, as high as the part of the attempts that failed."""
    step = (frame.right - frame.left) / len(failures)
    marks: dict[float, list[tuple[float, float]]] = {}
    for number, (failed, count) in enumerate(zip(failures, counts, strict=True)):
        if failed:
            part = round(max(min(failed / max(count, 1), 1.0) * tall, min(2.0, tall / 3)), 1)
            left = frame.left + number * step
            marks.setdefault(part, []).append((left, left + max(step, 1.5)))
    for part, edges in sorted(marks.items()):
        yield Cells(y + tall - part, part, "FAILED", tuple(edges))


def _legend(timeline: Timeline, rows: list[TimelineRow], y: float) -> Iterator[Shape]:
    entries: list[tuple[str, str]] = []
    bars = any(row.attempts for row in rows)
    counts = timeline.states()
    if bars:
        entries += [(state, f"{state} {count}") for state, count in counts.items()]
    if any(row.busy and any(row.counts or ()) for row in rows):
        entries += [(f"busy{SHADES}", "busy"), ("busy1", "partly busy")]
        if not bars:
            entries.append(("FAILED", f"failures: {counts.get('FAILED', 0)}"))
    x = MARGIN
    for colour, label in entries:
        yield Rect(x, y - 9.5, 11, 11, colour, 2.5)
        if bars and colour == State.FAILED.name:
            yield _failure_mark(x, y - 9.5, 11, 11)
        yield Text(x + 17, y, label, 12, "muted")
        x += 17 + text_width(label, 12) + 26


def _gap(height: float) -> float:
    """Space between rows."""
    return 2.0 if height >= 12 else 1.0 if height >= 8 else 0.6
