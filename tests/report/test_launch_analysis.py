"""Gaps between attempts on a core, efficiency of nodes, and times of launches."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.launch_analysis import Gap, SlowLaunch, analysis_of
from tests.report.timeline_samples import BEGAN, GRANTS, One, attempts, columns
from tests.support.pilot import job, run, run_requests
from tests.support.tiers import per_tier

SUCCEED = State.SUCCEED


def test_gaps_are_between_attempts_on_the_same_core():
    found = [
        One(BEGAN, BEGAN + 10, SUCCEED, 0),
        One(BEGAN + 12, BEGAN + 20, SUCCEED, 0),
        One(BEGAN, BEGAN + 15, SUCCEED, 1),
        One(BEGAN + 20, BEGAN + 30, SUCCEED, 2),  # on both cores of n1
    ]
    analysis = analysis_of(columns(found), [])
    assert analysis.gaps is not None
    assert (analysis.gaps.count, analysis.gaps.least, analysis.gaps.most) == (3, 0.0, 5.0)
    assert analysis.largest_gaps[:2] == [
        Gap("n1", 1, 5.0, BEGAN + 15, "job2", "job3"),
        Gap("n1", 0, 2.0, BEGAN + 10, "job0", "job1"),
    ]
    first, second, third, _ = analysis.cores
    assert (first.busy_seconds, first.gap_seconds, first.efficiency) == pytest.approx((28.0, 2.0, 28 / 30))
    assert (second.busy_seconds, second.gap_seconds, second.efficiency) == pytest.approx((25.0, 5.0, 25 / 30))
    assert (third.attempts, third.efficiency) == (0, None)
    n1, n2 = analysis.nodes
    assert (n1.cores, n1.attempts) == (2, 4)
    assert n1.utilisation == pytest.approx(53 / 60)
    assert (n2.attempts, n2.efficiency, n2.utilisation) == (0, None, 0.0)
    assert analysis.efficiency == pytest.approx(53 / 60)


def test_a_launch_begins_when_the_attempt_is_scheduled_and_its_cores_are_free():
    found = [
        One(BEGAN + 1, BEGAN + 10, SUCCEED, 0),
        One(BEGAN + 10.5, BEGAN + 20, SUCCEED, 0),
        One(BEGAN + 30, BEGAN + 31, SUCCEED, 2),
    ]
    made = columns(found)
    made.scheduled = array("d", [BEGAN, BEGAN + 5, BEGAN + 29.75])
    analysis = analysis_of(made, [1.0, 2.0])
    assert analysis.slowest_launches == [
        SlowLaunch("job0", 1, 1.0, BEGAN, "n1"),
        SlowLaunch("job1", 1, 0.5, BEGAN + 10, "n1"),
        SlowLaunch("job2", 1, 0.25, BEGAN + 29.75, "n1"),
    ]
    assert analysis.launches is not None
    assert analysis.launches.median == 0.5
    assert analysis.waits is not None
    assert analysis.waits.mean == 1.5


@pytest.mark.sampled
@settings(max_examples=per_tier(100, 2000), deadline=None)
@given(found=attempts())
def test_cores_agree_with_a_naive_computation(found: list[One]):
    analysis = analysis_of(columns(found), [])
    last = max([moment for one in found for moment in (one.start, one.end)], default=0.0)
    for use in analysis.cores:
        own = [one for one in found if any(p.node == use.node and use.core in p.cores for p in GRANTS[one.grant])]
        assert use.attempts == len(own)
        covered: list[list[float]] = []
        for start, end in sorted((one.start, max(one.end or last, one.start)) for one in own):
            if covered and start <= covered[-1][1]:
                covered[-1][1] = max(covered[-1][1], end)
            else:
                covered.append([start, end])
        assert use.busy_seconds == pytest.approx(sum(end - start for start, end in covered), abs=1e-4)
        assert use.gap_seconds == pytest.approx(sum(b[0] - a[1] for a, b in pairwise(covered)), abs=1e-4)


def test_a_run_without_attempts_has_no_times():
    analysis = analysis_of(columns([]), [])
    assert (analysis.attempts, analysis.gaps, analysis.launches, analysis.efficiency) == (0, None, None, None)


def test_the_command_prints_tables_and_json(tmp_path: Path):
    run_requests(tmp_path, [job("it", "true", iteration={"stop": 8}), job("one", "true")])
    done = run("qcg-pm", "report", tmp_path, "--analysis")
    assert done.returncode == 0, done.stderr
    for text in ("launch", "gap on a core", "efficiency", "largest gaps", "slowest launches"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 100, "the first line has the path of the run"
    found = json.loads(run("qcg-pm", "report", tmp_path, "--analysis", "--json").stdout)
    assert found["jobs"] == {"SUCCEED": 2}
    assert found["analysis"]["attempts"] == 9
    assert {"waits", "launches", "gaps", "largest_gaps", "nodes", "cores"} <= found["analysis"].keys()
    assert "analysis" not in json.loads(run("qcg-pm", "report", tmp_path, "--json").stdout)
