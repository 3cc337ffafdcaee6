"""The expected end of a run."""

from __future__ import annotations

from qcg.pilotjob.core.workload import Load
from qcg.pilotjob.report.estimate import Left, estimate

NOTHING = Left()


def load(waiting: int, places: float, mean: float | None, **more: float) -> Load:
    return Load(waiting, places, mean, **{"slowest": mean or 0.0, "ended": 100, **more})  # type: ignore[arg-type]


def test_the_work_is_divided_by_what_fits_at_once():
    found = estimate(1000.0, [load(80, 8, 10.0)], NOTHING)
    assert found is not None
    assert found.at == 1100.0
    assert found.earliest < found.at < found.latest
    assert "100 attempts" in found.basis


def test_all_requests_share_the_cores():
    found = estimate(0.0, [load(80, 8, 10.0), load(4, 1, 25.0)], NOTHING)
    assert found is not None
    assert found.at == 200.0


def test_a_run_takes_at_least_as_long_as_its_longest_attempt():
    found = estimate(0.0, [load(1, 100, 60.0)], NOTHING)
    assert found is not None
    assert found.at == 60.0
    running = estimate(0.0, [load(0, 100, 60.0, running=1, remaining=45.0, longest=45.0)], NOTHING)
    assert running is not None
    assert running.at == 45.0


def test_nothing_is_expected_before_an_attempt_has_succeeded_and_when_nothing_is_left():
    assert estimate(0.0, [load(10, 4, None)], NOTHING) is None
    assert estimate(0.0, [load(10, 0, 5.0)], NOTHING) is None
    assert estimate(0.0, [load(0, 4, 5.0)], NOTHING) is None
    assert estimate(0.0, [], NOTHING) is None


def test_durations_that_differ_make_the_end_uncertain():
    steady = estimate(0.0, [load(80, 8, 10.0, slowest=10.5)], NOTHING)
    varied = estimate(0.0, [load(80, 8, 10.0, slowest=60.0)], NOTHING)
    few = estimate(0.0, [load(80, 8, 10.0, slowest=10.5, ended=2)], NOTHING)
    assert steady is not None
    assert varied is not None
    assert few is not None
    assert varied.latest - varied.earliest > 3 * (steady.latest - steady.earliest)
    assert few.latest - few.earliest > steady.latest - steady.earliest


def test_unknown_durations_count_as_average_and_are_named():
    found = estimate(0.0, [load(80, 8, 10.0), load(20, 8, None, ended=0)], Left(dependent=60, held=5))
    assert found is not None
    assert found.at == 200.0
    assert found.latest > 300.0
    assert "80 wait for other jobs or have a request of which no attempt has succeeded" in found.basis
    assert "5 held jobs left out" in found.basis


def test_time_in_which_cores_are_held_and_nothing_runs_is_part_of_it():
    found = estimate(0.0, [load(8000, 8, 0.01)], Left(overhead=3.0))
    assert found is not None
    assert found.at == 30.0


def test_a_run_is_no_faster_than_attempts_can_be_started():
    found = estimate(0.0, [load(100_000, 128_000, 0.01)], Left(start_rate=10_000.0))
    assert found is not None
    assert found.at == 10.0
