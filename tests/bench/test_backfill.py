"""Workload traces, and the rules that are compared on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import backfill, easy, swf
from bench.backfill import POLICIES, Simulation, as_table, compare, main, nothing_learned, trace_of
from bench.finding import Setting
from bench.swf import TraceError, TraceJob
from bench.traces import GENERATORS, Trace, generate
from qcg.pilotjob.core import forecast

SMALL = Trace(
    "small",
    16,
    [
        TraceJob(1, 0.0, 50.0, 12, 100.0),
        TraceJob(2, 1.0, 10.0, 16, 20.0),
        TraceJob(3, 2.0, 10.0, 4, 500.0),
        TraceJob(4, 3.0, 10.0, 4, 60.0),
    ],
)
"""A running job, a wide job, a job that would delay the wide one, and a job that ends in time."""


@pytest.mark.parametrize("name", GENERATORS)
def test_a_trace_is_the_same_for_the_same_seed_and_can_be_run(name: str) -> None:
    trace = generate(name, 64, 200)
    assert trace == generate(name, 64, 200)
    assert trace != generate(name, 64, 200, seed=2)
    assert all(1 <= job.cores <= 64 and 0 < job.seconds <= job.limit for job in trace.jobs)
    assert [job.submitted for job in trace.jobs] == sorted(job.submitted for job in trace.jobs)
    assert any(job.cores >= trace.wide for job in trace.jobs)


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = generate("mixed", 64, 50)
    swf.write(tmp_path / "trace.swf", trace.jobs, trace.cores, "generated")
    assert swf.read(tmp_path / "trace.swf") == trace.jobs
    assert trace_of(tmp_path / "trace.swf").cores == 64


def test_jobs_that_never_ran_are_left_out_and_used_processors_stand_in_for_requested_ones() -> None:
    lines = [
        "; UnixStartTime: 0",
        "1 10 5 60 8 -1 -1 -1 90 -1 1 1 1 1 1 1 -1 -1",
        "2 11 0 -1 4 -1 -1 4 9 -1 5" + " -1" * 7,
    ]
    assert swf.parse(lines) == [TraceJob(1, 10.0, 60.0, 8, 90.0)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3", "trace, line 1: 3 numbers; a job of an SWF trace has 18"),
        ("1 two 3", "trace, line 1: '1 two 3' has something else than numbers"),
    ],
)
def test_a_line_in_another_format_is_named(line: str, message: str) -> None:
    with pytest.raises(TraceError) as raised:
        swf.parse([line])
    assert str(raised.value) == message


def test_easy_lets_only_jobs_overtake_that_delay_nothing() -> None:
    assert easy.starts(SMALL) == {1: 0.0, 2: 50.0, 3: 60.0, 4: 3.0}


def test_the_core_with_wall_times_decides_like_easy_on_one_node() -> None:
    assert Simulation(SMALL, limits=True).run() == easy.starts(SMALL)


def test_without_wall_times_the_wide_job_is_overtaken() -> None:
    with nothing_learned():
        assert Simulation(SMALL, limits=False).run() == {1: 0.0, 2: 50.0, 3: 2.0, 4: 12.0}
    assert forecast.ENOUGH_ENDED == 10


@pytest.mark.parametrize("name", GENERATORS)
def test_every_rule_starts_every_job_after_its_submission(name: str) -> None:
    trace = generate(name, 64, 120)
    for policy in POLICIES.values():
        starts = policy(trace)
        assert all(starts[job.number] >= job.submitted for job in trace.jobs)
        ends = sorted((starts[job.number] + job.seconds, -job.cores) for job in trace.jobs)
        changes = sorted([*ends, *[(starts[job.number], job.cores) for job in trace.jobs]])
        busy = 0
        for _, cores in changes:
            busy += cores
            assert busy <= trace.cores


def test_reservations_use_more_and_make_wide_jobs_wait_less_than_patience() -> None:
    outcomes = compare(generate("mixed", 256, 400))
    assert outcomes["reservations"].utilisation > outcomes["patience alone"].utilisation
    assert outcomes["reservations"].wide_wait < outcomes["patience alone"].wide_wait
    assert outcomes["reservations"].utilisation == pytest.approx(outcomes["EASY as published"].utilisation, abs=3)


def test_the_benchmark_has_a_utilisation_and_a_wait_for_each_rule(tmp_path: Path) -> None:
    result = backfill.run(Setting(directory=tmp_path, rounds=1, scale=0.02, parallel=2))
    assert len(result.findings) == 2 * len(POLICIES) * len(GENERATORS)


def test_the_page_has_a_row_for_each_rule_and_trace() -> None:
    page = backfill.PAGE.read_text()
    shown = page.partition(backfill.BEGIN)[2].partition(backfill.END)[0].strip().splitlines()
    wanted = as_table({name: dict.fromkeys(POLICIES, backfill.Outcome(0, 0, 0, 0)) for name in GENERATORS}).splitlines()
    assert [line.split("|")[1:3] for line in shown] == [line.split("|")[1:3] for line in wanted]


def test_a_trace_of_the_archive_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.swf"
    swf.write(path, SMALL.jobs, SMALL.cores, "small")
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.count("\n") == 2 + len(POLICIES)
    assert main([str(tmp_path / "missing.swf")]) == 1
    assert "missing.swf" in capsys.readouterr().err
