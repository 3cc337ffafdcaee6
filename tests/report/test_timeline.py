"""The timeline shows what the registry has, for any window, and quickly for a million attempts."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report import timeline
from qcg.pilotjob.report.timeline import Bar, Timeline
from tests.report.timeline_samples import BEGAN, GRANTS, LANES, One, attempts, columns
from tests.support.large_registry import Shape, write_registry
from tests.support.tiers import per_tier


def of_lane(found: list[One], node: str, core: int) -> list[One]:
    return [one for one in found if any(part.node == node and core in part.cores for part in GRANTS[one.grant])]


def covered(intervals: list[tuple[float, float]], first: float, last: float) -> float:
    """The length of the union of intervals in a window, from one end of an interval to the next."""
    cuts = sorted({first, last, *(cut for interval in intervals for cut in interval if first < cut < last)})
    return math.fsum(b - a for a, b in pairwise(cuts) if any(s <= a and b <= e for s, e in intervals))


def end_of(one: One, last: float = 0.0) -> float:
    """The end of an attempt, which is after its start."""
    return max(one.end or last, math.nextafter(one.start, math.inf))


def expected_counts(found: list[One], last: float, first: float, end: float) -> int:
    return sum(one.start < end and end_of(one, last) > first for one in found)


def failures(found: list[One], first: float, last: float) -> int:
    """Failures after `first`, up to `last`."""
    return sum(one.state is State.FAILED and first < end_of(one) <= last for one in found)


@settings(max_examples=per_tier(150, 3000), deadline=None)
@given(found=attempts(), window=st.tuples(st.floats(-2, 14), st.floats(1, 14)), width=st.integers(32, 70))
@pytest.mark.sampled
def test_every_window_agrees_with_a_naive_computation(found: list[One], window: tuple[float, float], width: int):
    made = Timeline(columns(found))
    first, last = BEGAN + window[0], BEGAN + window[0] + window[1]
    times = [first + (last - first) / width * number for number in range(width)] + [last]
    pairs = list(pairwise(times))
    bars = made.rows(first, last, 6000, slice(None), "core")
    assert [(row.node, row.core) for row in bars] == LANES
    timeline.MOST_BARS, before = 0, timeline.MOST_BARS  # bins only
    try:
        binned = made.rows(first, last, width, slice(None), "core")
    finally:
        timeline.MOST_BARS = before
    for row, exact in zip(binned, bars, strict=True):
        assert row.core is not None
        own = of_lane(found, row.node, row.core)
        if not own:
            assert exact.attempts is None or exact.attempts == []
        elif exact.attempts is not None:
            shown = [one for one in own if expected_counts([one], made.last, first, last)]
            assert sorted(bar.start for bar in exact.attempts) == sorted(one.start for one in shown)
            assert [bar.end is None for bar in exact.attempts].count(True) == [one.end for one in shown].count(0.0)
        if row.attempts is not None:  # nothing in this window
            assert row.attempts == []
            assert not any(expected_counts(own, made.last, a, b) for a, b in pairs)
            continue
        assert row.busy is not None
        intervals = [(one.start, end_of(one, made.last)) for one in own]
        expected = [covered(intervals, a, b) / (b - a) for a, b in pairs]
        assert row.busy == pytest.approx(expected, abs=2e-4)
        assert row.counts == [expected_counts(own, made.last, a, b) for a, b in pairs]
        assert row.failures == [failures(own, a, b) for a, b in pairs]


@settings(max_examples=per_tier(100, 2000), deadline=None)
@given(found=attempts(), window=st.tuples(st.floats(-2, 14), st.floats(1, 14)))
@pytest.mark.sampled
def test_nodes_and_the_whole_run_agree_with_a_naive_computation(found: list[One], window: tuple[float, float]):
    made = Timeline(columns(found))
    first, last, bins = BEGAN + window[0], BEGAN + window[0] + window[1], 40
    times = [first + (last - first) / bins * number for number in range(bins)] + [last]
    pairs = list(pairwise(times))
    total = [0.0] * bins
    for row in made.rows(first, last, bins, slice(None), "node"):
        own = [one for one in found if any(part.node == row.node for part in GRANTS[one.grant])]
        expected = []
        for number, (a, b) in enumerate(pairs):
            seconds = math.fsum(
                len(part.cores) * max(min(end_of(one, made.last), b) - max(one.start, a), 0.0)
                for one in own
                for part in GRANTS[one.grant]
                if part.node == row.node
            )
            total[number] += seconds
            expected.append(min(seconds / (b - a) / 2, 1.0))
        assert row.cores == 2
        assert row.busy == pytest.approx(expected, abs=2e-4)
        assert row.counts == [expected_counts(own, made.last, a, b) for a, b in pairs]
        assert row.failures == [failures(own, a, b) for a, b in pairs]
    width = (last - first) / bins
    begin, end = made.first, made.last
    possible = [4 * max(min(b, end) - max(a, begin), 0.0) for a, b in pairs]
    for got, seconds, most in zip(made.utilisation(first, last, bins), total, possible, strict=True):
        if most > 0.01 * width:
            assert got == pytest.approx(min(seconds / most, 1.0), abs=1e-3)
    through = made.throughput(first, last, bins)
    assert through.starts == [sum(a <= one.start < b for one in found) for a, b in pairs]
    assert through.failures == [failures(found, a, b) for a, b in pairs]
    assert through.ends == [sum(a < end_of(one) <= b for one in found if one.end) for a, b in pairs]


def test_nodes_of_earlier_managers_count_from_their_first_attempt_to_their_last():
    """n2 was there from second 0 to 10, n1 from second 10 on; one of two cores was busy all the time."""
    found = [One(BEGAN, BEGAN + 10, State.SUCCEED, 3), One(BEGAN + 10, BEGAN + 20, State.SUCCEED, 0)]
    made = Timeline(columns(found, nodes=(("n1", 2),)))
    assert made.utilisation(BEGAN, BEGAN + 20, 4) == pytest.approx([0.5, 0.5, 0.5, 0.5])


def test_idle_cores_have_rows_and_nodes_come_in_the_order_of_the_manager():
    made = Timeline(columns([], nodes=(("n10", 2), ("n9", 1))))
    rows = made.rows(BEGAN, BEGAN + 1, 100, slice(None), "core")
    assert [(row.node, row.core) for row in rows] == [("n10", 0), ("n10", 1), ("n9", 0), *LANES]
    assert [row.node for row in made.rows(BEGAN, BEGAN + 1, 100, slice(1, 2), "node")] == ["n9"]
    assert (made.lanes("core"), made.lanes("node"), made.attempts) == (7, 4, 0)


def test_rows_are_small_in_json():
    found = [One(BEGAN, BEGAN + 10, State.FAILED, 0)]
    made = Timeline(columns(found, nodes=(("n1", 1),)))
    (row,) = made.rows(BEGAN, BEGAN + 20, 100, slice(0, 1), "core")
    assert row.attempts == [Bar("job0", BEGAN, BEGAN + 10, "FAILED", 1)]
    assert msgspec.json.decode(msgspec.json.encode(row)) == {
        "node": "n1",
        "core": 0,
        "cores": 1,
        "attempts": [{"name": "job0", "start": BEGAN, "end": BEGAN + 10, "state": "FAILED", "attempt": 1}],
    }


def test_a_registry_is_read_with_names_and_repeated_attempts(tmp_path: Path):
    path = tmp_path / FILE_NAME
    write_registry(path, Shape(200, nodes=1, cores=2, failed=0.2, retried=0.3))
    with snapshot(path) as connection:
        made = Timeline.read(connection)
        (latest,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        (past,) = connection.execute("SELECT count(*) FROM past_attempts").fetchone()
        (last,) = connection.execute("SELECT max(ended) FROM runs").fetchone()
    assert past > 10
    assert made.attempts == latest + past == 200 + past
    assert made.last == last
    rows = made.rows(made.first, made.last, 6000, slice(None), "core")
    bars = [bar for row in rows for bar in row.attempts or []]
    assert len(bars) == made.attempts
    assert {bar.name for bar in bars} == {f"sweep:{index}" for index in range(100)} | {
        f"job{seq}" for seq in range(2, 102)
    }
    repeated = [bar for bar in bars if bar.attempt == 2]
    assert len(repeated) == past
    for bar in repeated:
        (first,) = (one for one in bars if one.name == bar.name and one.attempt == 1)
        assert first.state == "FAILED"
        assert first.end is not None
        assert first.end <= bar.start


def test_cells_that_no_manager_has_written_are_reported_in_one_sentence(tmp_path: Path):
    path = tmp_path / FILE_NAME
    write_registry(path, Shape(20))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET attempt = 'x' WHERE place = (SELECT max(place) FROM runs)")
    with snapshot(path, whole=False) as connection, pytest.raises(JournalError, match="an attempt could not be read"):
        Timeline.read(connection)


MEASURE = """
import resource, sys, time
from pathlib import Path
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.timeline import Timeline

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

with snapshot(Path(sys.argv[1]), whole=False) as connection:
    before = resident()
    began = time.process_time()
    made = Timeline.read(connection)
    read = time.process_time() - began
    memory = resident() - before
slowest = 0.0
span = made.last - made.first
for level in ("core", "node"):
    for begin, end in ((0, 1), (0.3, 0.4), (0.5, 0.501), (0.5, 0.5001)):
        began = time.process_time()
        made.rows(made.first + begin * span, made.first + end * span, 1200, slice(0, 50), level)
        slowest = max(slowest, time.process_time() - began)
for function in (made.utilisation, made.throughput):
    began = time.process_time()
    function(made.first, made.last, 1000)
    slowest = max(slowest, time.process_time() - began)
print(made.attempts, read, slowest, memory)
"""


@pytest.mark.sampled
def test_a_million_attempts_take_little_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """In a separate process, and in seconds of processor time: other tests run at the same time."""
    number = per_tier(100_000, 1_000_000)
    write_registry(tmp_path / FILE_NAME, Shape(number))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / FILE_NAME], stdout=subprocess.PIPE, text=True, check=True
    )
    attempts, read, slowest, memory = map(float, done.stdout.split())
    with capsys.disabled():
        print(f" [{number} attempts: read {read:.1f} s, window {slowest * 1000:.0f} ms, {memory:.0f} MB] ", end="")
    assert attempts >= number
    assert read < 1e-5 * number
    assert slowest < 0.1
    assert memory < 20 + 130 * number / 1e6
