"""Dependencies between jobs and iterations."""

from __future__ import annotations

import time

import pytest

from qcg.pilotjob.core import finalize
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.core.events import AttemptEnded, Cancel, HostReported, Schedule, Submit
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.sanity import check
from qcg.pilotjob.host.records import Ended
from tests.core.core_driver import CoreDriver, job, machine


def test_a_job_waits_for_another() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("b", after="a"), job("a"))
    assert driver.schedule() == ["a on n1[0]"]
    driver.start("a")
    assert driver.schedule() == []
    driver.end("a")
    assert driver.schedule() == ["b on n1[0]"]


def test_a_job_waits_for_all_of_several() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a"), job("b"), job("it", its=2), job("d", after="a b it a it:0"))
    driver.schedule()
    for name in ["b", "a", "it:0"]:
        driver.end(name)
        assert driver.schedule() == []
    driver.end("it:1")
    assert driver.schedule() == ["d on n1[0]"]


def test_a_job_waits_for_one_iteration_alone() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("it", its=range(1, 4)), job("b", after="it:2"))
    driver.schedule()
    driver.end("it:1", exit_code=1)
    assert driver.schedule() == []
    driver.end("it:2")
    assert driver.schedule() == ["b on n1[0]"]


def test_iterations_wait_for_the_same_index() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=3), job("b", its=3, after="a:${it}"))
    assert driver.schedule() == ["a:0 on n1[0]", "a:1 on n1[1]"]
    driver.end("a:1")
    assert driver.schedule() == ["a:2 on n1[1]"]
    driver.end("a:0")
    assert driver.schedule() == ["b:0 on n1[0]"]
    driver.end("a:2")
    assert driver.schedule() == ["b:1 on n1[1]"]


def test_the_same_index_is_found_in_other_ranges_and_steps() -> None:
    driver = CoreDriver(machine(8))
    driver.submit(job("a", its=range(7)), job("b", its=range(2, 7, 2), after=("a:${ it }",)))
    driver.schedule()
    driver.end("a:1", "a:4")
    assert driver.schedule() == ["b:4 on n1[1]"]


def test_iterations_wait_for_whole_jobs_single_iterations_and_the_same_index_together() -> None:
    driver = CoreDriver(machine(8))
    driver.submit(job("w"), job("a", its=2), job("c", its=2), job("b", its=2, after="w a:${it} c:${it} c:0"))
    driver.schedule()
    driver.end("a:0", "a:1", "c:1")
    assert driver.schedule() == []
    driver.end("w")
    assert driver.schedule() == []
    driver.end("c:0")
    assert driver.schedule() == ["b:0 on n1[0]", "b:1 on n1[1]"]


def test_an_iterated_job_waits_for_a_whole_one() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("it", its=3, after="a"))
    driver.schedule()
    driver.end("a")
    assert driver.schedule() == ["it:0 on n1[0]", "it:1 on n1[1]"]


def finished() -> CoreDriver:
    """`good` and `it:0`, `it:2` have succeeded, `bad` and `it:1` have failed, `half:0` has succeeded."""
    driver = CoreDriver(machine(7))
    driver.submit(job("good"), job("bad"), job("it", its=3), job("half", its=2))
    driver.schedule()
    driver.end("good", "it:0", "it:2", "half:0")
    driver.end("bad", "it:1", exit_code=1)
    return driver


@pytest.mark.parametrize("after", ["good", "it:0", "half:0", "good it:2"])
def test_prerequisites_that_have_succeeded_are_met(after: str) -> None:
    driver = finished()
    assert driver.submit(job("a", after=after)) == []
    assert driver.schedule() == ["a on n1[0]"]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("bad", "'bad', which is FAILED"),
        ("it", "'it', which is FAILED"),
        ("it:1", "'it:1', which is FAILED"),
        ("good bad half", "'bad', which is FAILED"),
    ],
)
def test_a_job_with_a_failed_prerequisite_is_omitted_at_submission(after: str, reason: str) -> None:
    driver = finished()
    assert driver.submit(job("a", after=after)) == [f"a OMITTED: it waits for {reason}"]


def test_many_iterations_with_failed_prerequisites_are_omitted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", 1)
    driver = CoreDriver(machine(7))
    driver.submit(job("it", its=range(1, 8)))
    driver.schedule()
    driver.end("it:1", "it:2", "it:6")
    driver.end("it:3", "it:5", "it:7", exit_code=1)
    assert driver.submit(job("a", its=range(7, 0, -2), after="it:${it}")) == [
        "together a:7 a:5 a:3 OMITTED: it waits for the same index of 'it', which is FAILED"
    ]
    assert driver.schedule() == ["a:1 on n1[0]"]


def test_same_index_dependencies_on_a_final_job_are_checked_index_by_index() -> None:
    driver = finished()
    assert driver.submit(job("a", its=3, after="it:${it} half")) == [
        "a:1 OMITTED: it waits for 'it:1', which is FAILED"
    ]
    assert driver.schedule() == []
    driver.end("half:1")
    assert driver.schedule() == ["a:0 on n1[0]", "a:2 on n1[1]"]


def test_same_index_dependencies_on_an_unfinished_job_are_checked_index_by_index() -> None:
    driver = finished()
    assert driver.submit(job("a", its=2, after="half:${it}")) == []
    assert driver.schedule() == ["a:0 on n1[0]"]
    driver.end("half:1")
    assert driver.schedule() == ["a:1 on n1[1]"]


LEVELS = 100_000


def chain(levels: int, *, reverse: bool) -> Core:
    jobs = [job("j0"), *[job(f"j{level}", after=f"j{level - 1}") for level in range(1, levels)]]
    core = Core(machine(1))
    core.handle(HostReported(["n1"], []), 0.0)
    core.handle(Submit(jobs[::-1] if reverse else jobs), 0.0)
    return core


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "in reverse order"])
def test_a_chain_of_any_depth_is_omitted_at_once(reverse: bool) -> None:
    core = chain(LEVELS, reverse=reverse)
    before = time.process_time()
    effects = core.handle(Cancel(["j0"]), 1.0)
    assert time.process_time() - before < 5.0
    assert sum(isinstance(effect, Transition) and effect.state is State.OMITTED for effect in effects) == LEVELS - 1
    assert core.state.unfinished == 0
    check(core.state)


def test_a_deep_chain_submitted_in_reverse_runs_link_by_link() -> None:
    core = chain(1000, reverse=True)
    for level in range(1000):
        core.handle(Schedule(), 1.0)
        (attempt,) = core.state.attempts.values()
        assert attempt.job.name == f"j{level}"
        core.handle(AttemptEnded(Ended(attempt.id, 2.0, 0, "exit", "", 7, 1.0)), 2.0)


def test_a_chain_by_index_is_omitted_index_by_index() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("j0", its=2), *[job(f"j{level}", its=2, after=f"j{level - 1}:${{it}}") for level in range(1, 50)])
    assert driver.cancel("j0:1") == [
        "j0:1 CANCELED",
        *[
            f"j{level}:1 OMITTED: it waits for 'j{level - 1}:1', which is {'OMITTED' if level > 1 else 'CANCELED'}"
            for level in range(1, 50)
        ],
        "reply {'canceled': 1}",
    ]
