"""Consequences of final states for dependents and iterated jobs."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core import finalize
from qcg.pilotjob.core.effects import IterationsFinal
from qcg.pilotjob.core.events import Cancel, Withdraw
from tests.core.core_driver import CoreDriver, job, machine


def test_dependents_of_a_failed_job_are_omitted_at_once_through_any_kind_of_dependency() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(
        job("a"), job("b", after="a"), job("it", its=2, after="b"), job("c", after="it:1"), job("d", after="it")
    )
    driver.schedule()
    assert driver.end("a", exit_code=1) == [
        "a FAILED: exit code 1",
        "b OMITTED: it waits for 'a', which is FAILED",
        "rest of it OMITTED",
        "c OMITTED: it waits for 'it:1', which is OMITTED",
        "it OMITTED: it waits for 'b', which is OMITTED",
        "d OMITTED: it waits for 'it', which is OMITTED",
        "all done",
    ]


def test_a_failed_iteration_omits_its_own_index_alone() -> None:
    driver = CoreDriver(machine(3))
    driver.submit(job("a", its=3), job("b", its=3, after="a:${it}"), job("c", after="a:0"), job("d", after="a:1"))
    driver.schedule()
    assert driver.end("a:1", exit_code=1) == [
        "a:1 FAILED: exit code 1",
        "d OMITTED: it waits for 'a:1', which is FAILED",
        "b:1 OMITTED: it waits for 'a:1', which is FAILED",
    ]
    driver.end("a:0", "a:2")
    assert driver.schedule() == ["b:0 on n1[0]", "b:2 on n1[1]", "c on n1[2]"]
    assert driver.end("b:0", "b:2") == ["b:0 SUCCEED", "b:2 SUCCEED", "b OMITTED"]


def test_a_dependent_on_an_iterated_job_is_omitted_when_that_job_is_final() -> None:
    driver = CoreDriver(machine(3))
    driver.submit(job("a", its=2), job("b", after="a"))
    driver.schedule()
    assert driver.end("a:0", exit_code=1) == ["a:0 FAILED: exit code 1"]
    assert driver.end("a:1") == ["a:1 SUCCEED", "a FAILED", "b OMITTED: it waits for 'a', which is FAILED", "all done"]


def test_same_index_dependents_of_a_canceled_job_are_omitted_as_a_whole() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", its=1000, after="a"), job("c", its=1000, after="b:${it}"))
    assert driver.cancel("a") == [
        "a CANCELED",
        "rest of b OMITTED",
        "rest of c OMITTED",
        "b OMITTED: it waits for 'a', which is CANCELED",
        "c OMITTED: it waits for 'b', which is OMITTED",
        "all done",
        "reply {'canceled': 1}",
    ]


def test_same_index_dependents_of_some_canceled_iterations_are_omitted_one_by_one() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("b", its=3), job("c", its=3, after="b:${it}"))
    driver.schedule()
    driver.end("b:0")
    assert driver.cancel("b") == [
        "rest of b CANCELED",
        "c:1 OMITTED: it waits for 'b:1', which is CANCELED",
        "c:2 OMITTED: it waits for 'b:2', which is CANCELED",
        "b CANCELED",
        "reply {'canceled': 1}",
    ]
    assert driver.schedule() == ["c:0 on n1[0]"]
    assert driver.end("c:0") == ["c:0 SUCCEED", "c OMITTED", "all done"]


def test_many_same_index_dependents_of_canceled_iterations_are_omitted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", 1)
    driver = CoreDriver(machine(1))
    driver.submit(job("b", its=4), job("c", its=4, after="b:${it}"), job("d", its=range(3, 0, -1), after="c:${it}"))
    driver.schedule()
    driver.end("b:0")
    assert driver.cancel("b") == [
        "rest of b CANCELED",
        "together c:1 c:2 c:3 OMITTED: it waits for the same index of 'b', which is CANCELED",
        "b CANCELED",
        "rest of d OMITTED",
        "d OMITTED: it waits for the same index of 'c', which is OMITTED",
        "reply {'canceled': 1}",
    ]
    assert driver.iteration_states("c") == ["QUEUED", "OMITTED", "OMITTED", "OMITTED"]
    assert driver.schedule() == ["c:0 on n1[0]"]
    assert driver.end("c:0") == ["c:0 SUCCEED", "c OMITTED", "all done"]


@pytest.mark.parametrize("few", [finalize.MAX_SINGLE_TRANSITIONS, 0])
@pytest.mark.parametrize("attempts_on", [True, False])
def test_the_message_of_omitted_iterations_is_not_the_message_of_a_failed_job(
    monkeypatch: pytest.MonkeyPatch, few: int, attempts_on: bool
) -> None:
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", few)
    driver = CoreDriver(machine(2))
    driver.submit(job("b", its=4, wt=3600.0), job("c", its=4, after="b:${it}"))
    driver.schedule()
    driver.deadline(driver.now + 1000)
    driver.end("b:0", "b:1")
    driver.schedule()
    driver.end("c:0", exit_code=1)
    lines = [] if attempts_on else driver.end("c:1")
    lines += driver.cancel("b")
    lines += driver.end("c:1") if attempts_on else []
    assert [line for line in lines if line.startswith("c FAILED")] == ["c FAILED"]


def test_dependents_on_one_of_many_iterations_omitted_together_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalize, "MAX_SINGLE_TRANSITIONS", 1)
    driver = CoreDriver(machine(1))
    driver.submit(job("b", its=4), job("c", its=4, after="b:${it}"), job("d", after="c:2"), job("e", after="c:0"))
    driver.schedule()
    driver.end("b:0")
    assert "d OMITTED: it waits for 'c:2', which is OMITTED" in driver.cancel("b")
    assert driver.schedule() == ["c:0 on n1[0]"]
    driver.end("c:0")
    assert driver.schedule() == ["e on n1[0]"]


def test_many_same_index_dependents_are_omitted_with_one_effect() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("b", its=100_000), job("c", its=100_000, after="b:${it}"))
    driver.schedule()
    driver.end("b:0")
    effects = driver.core.handle(Cancel(["b"]), 10.0)
    (together,) = [effect for effect in effects if isinstance(effect, IterationsFinal)]
    assert together.bitmap.count(1) == 99_999
    assert len(effects) == 4
    assert driver.core.state.iteration_counts == [1, 0, 0, 1, 0, 99_999, 99_999]


def test_a_withdrawn_job_is_not_omitted_with_its_prerequisite() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("b", its=3))
    driver.submit(job("c", its=3, after="b:${it}"))
    driver.schedule()
    driver.end("b:0")
    assert driver.handle(Withdraw(["c"])) == ["removed c"]
    assert driver.cancel("b") == ["rest of b CANCELED", "b CANCELED", "all done", "reply {'canceled': 1}"]


ENDS = {
    "SUCCEED": [0, 0, 0, 0],
    "FAILED": [0, 1, 0, 0],
}


@pytest.mark.parametrize(("state", "exit_codes"), ENDS.items(), ids=ENDS)
def test_an_iterated_job_gets_the_final_state_of_its_iterations(state: str, exit_codes: list[int]) -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("it", its=len(exit_codes)))
    driver.schedule()
    for index, exit_code in enumerate(exit_codes):
        driver.end(f"it:{index}", exit_code=exit_code)
    assert driver.states() == {"it": state}


def test_an_iterated_job_with_a_failed_iteration_fails_whatever_the_others_are() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=4))
    driver.schedule()
    driver.end("it:0", exit_code=1)
    driver.cancel("it:2", "it:3")
    assert driver.end("it:1") == ["it:1 SUCCEED", "it FAILED", "all done"]
    assert driver.iteration_states("it") == ["FAILED", "SUCCEED", "CANCELED", "CANCELED"]


def test_all_done_is_emitted_exactly_when_the_last_job_is_final() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a"), job("it", its=2), job("c", after="it"))
    driver.schedule()
    effects = driver.end("a", "it:0", "it:1")
    driver.schedule()
    assert "all done" not in effects
    assert driver.end("c") == ["c SUCCEED", "all done"]
    assert driver.submit(job("d"), job("huge", 99)) == ["huge FAILED: 99 cores requested, but only 4 exist"]
    assert driver.cancel("d") == ["d CANCELED", "all done", "reply {'canceled': 1}"]


def test_a_final_job_drops_its_queue_entries_and_dependencies() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"))
    driver.schedule()
    driver.end("a")
    a = driver.core.state.jobs["a"]
    assert (a.entries, a.unmet, a.dependents, a.attempt) == ((), None, None, None)
