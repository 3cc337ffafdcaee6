"""Cleanup of multi-node attempts and strays: cores are held until all nodes are swept."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.events import AttemptEnded, AttemptSwept
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, Running
from tests.core.core_driver import CoreDriver, job, machine, reported_grant


def spread(*, rerun_lost: bool = False, nodes: int = 2) -> CoreDriver:
    """`a` runs on all nodes with one core each; `b` waits for a core."""
    driver = CoreDriver(machine(*[1] * nodes), rerun_lost=rerun_lost, sweeping=False)
    driver.submit(job("a", nodes=nodes))
    assert len(driver.schedule()) == 1
    driver.start("a")
    driver.submit(job("b"))
    return driver


def late_end(driver: CoreDriver, attempt: Attempt, reason: str = "cancel") -> list[str]:
    return driver.handle(AttemptEnded(Ended(attempt.id, driver.now, -15, reason, "", 1000, driver.now)))


def test_a_multi_node_attempt_ends_when_all_its_nodes_have_been_swept() -> None:
    driver = spread(nodes=3)
    assert driver.end("a") == ["sweep 1.1 on n2", "sweep 1.1 on n3"]
    assert driver.states()["a"] == "EXECUTING"
    assert driver.sweep("a", "n3") == []
    assert driver.schedule() == [], "its cores are not given away before"
    assert driver.sweep("a", "n2") == ["a SUCCEED"]
    assert driver.schedule() == ["b on n1[0]"]


def test_duplicate_and_late_sweep_reports_are_ignored() -> None:
    driver = spread()
    attempt = driver.attempt("a")
    driver.end("a")
    driver.sweep("a", "n2")
    assert driver.handle(AttemptSwept(attempt.id, "n2")) == []
    assert driver.handle(AttemptSwept("77.1", "n2")) == []


def test_success_is_held_back_while_a_node_is_unreachable_and_counts_when_it_is_back() -> None:
    driver = spread()
    driver.silent("n2")
    assert driver.end("a") == ["sweep 1.1 on n2"]
    assert driver.states()["a"] == "EXECUTING"
    assert driver.report("n2") == ["sweep 1.1 on n2"], "it is asked again: the question may not have reached it"
    assert driver.sweep("a", "n2") == ["a SUCCEED"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_attempt_that_ended_is_lost_when_an_unswept_node_is_lost(exit_code: int) -> None:
    """A launcher may exit with 0 or any other code when one of its nodes dies."""
    driver = spread()
    driver.silent("n2")
    driver.end("a", exit_code=exit_code)
    assert driver.lose("n2", message="node lost: n2") == ["a FAILED: node lost: n2"]
    again = spread(rerun_lost=True)
    again.silent("n2")
    again.end("a", exit_code=exit_code)
    assert again.lose("n2") == ["requeued a", "a QUEUED"]


def test_a_wall_time_failure_and_a_cancel_are_kept_when_a_node_is_lost() -> None:
    driver = spread()
    driver.end("a", exit_code=-15, reason="timeout", message="too long")
    assert driver.lose("n2") == ["a FAILED: too long"]
    driver = spread()
    driver.cancel("a")
    driver.end("a", exit_code=-15, reason="cancel")
    assert driver.lose("n2") == ["a CANCELED: the node is gone"]


def test_a_success_swept_on_all_nodes_is_kept_when_a_node_is_lost_afterwards() -> None:
    driver = spread(nodes=3)
    driver.end("a")
    driver.sweep("a", "n2")
    assert driver.lose("n1", "n2") == []
    assert driver.sweep("a", "n3") == ["a SUCCEED"]


def test_when_a_node_is_lost_the_attempt_is_ended_on_the_others_before_its_cores_are_free() -> None:
    driver = spread(nodes=3)
    assert driver.lose("n2") == ["stop a: lost"]
    assert driver.schedule() == []
    assert driver.end("a", exit_code=-15, reason="lost", message="the node is gone") == ["sweep 1.1 on n3"]
    assert driver.sweep("a", "n3") == ["a FAILED: the node is gone"]
    assert driver.schedule() == ["b on n1[0]"]


def test_when_the_first_node_is_lost_the_others_are_swept() -> None:
    driver = spread(rerun_lost=True)
    attempt = driver.attempt("a")
    assert driver.lose("n1") == ["sweep 1.1 on n2"]
    assert driver.schedule() == []
    assert driver.handle(AttemptSwept(attempt.id, "n2")) == ["requeued a", "a QUEUED"]
    assert driver.schedule() == ["b on n2[0]"]


def test_when_all_nodes_are_lost_none_is_swept() -> None:
    assert spread().lose("n1", "n2") == ["a FAILED: the node is gone"]


def test_a_first_node_that_comes_back_during_the_sweep_ends_its_part() -> None:
    driver = spread()
    driver.lose("n1")
    assert driver.report("n1", live=[driver.running("a")]) == ["stop a: lost"]
    assert driver.sweep("a", "n2") == []
    assert driver.end("a", exit_code=-15, reason="cancel") == ["a FAILED: the node is gone"]


def test_a_lost_node_that_comes_back_is_swept_too() -> None:
    driver = spread()
    driver.lose("n2")
    assert driver.report("n2") == []
    assert driver.end("a", exit_code=-15, reason="lost", message="x") == ["sweep 1.1 on n2"]
    assert driver.sweep("a", "n2") == ["a FAILED: x"]


def test_an_attempt_in_cleanup_unknown_to_its_agent_is_over_there() -> None:
    driver = spread()
    driver.lose("n2")
    assert driver.report("n1") == ["a FAILED: the node is gone"]


# -- strays ------------------------------------------------------------------------------------------------------


def test_a_stray_on_a_returning_node_holds_its_cores_until_it_is_gone() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", 2))
    driver.schedule()
    driver.start("a")
    attempt, running = driver.attempt("a"), driver.running("a")
    driver.lose("n1")
    assert driver.report("n1", live=[running]) == ["kill stray 1.1 on n1"]
    assert driver.schedule() == [], "one core is still in use"
    assert driver.report("n1", live=[running]) == ["kill stray 1.1 on n1"], "repeated"
    assert late_end(driver, attempt) == []
    assert driver.schedule() == ["b on n1[0:1]"]


def test_a_stray_holds_nothing_once_its_agent_forgets_it_or_its_node_is_lost() -> None:
    for goes in (lambda driver: driver.report("n1"), lambda driver: [*driver.lose("n1"), *driver.report("n1")]):
        driver = CoreDriver(machine(2))
        driver.submit(job("b", 2))
        assert driver.report("n1", live=[Running("9.1", 5, 1.0, [("n1", (0,), ())])]) == ["kill stray 9.1 on n1"]
        assert driver.schedule() == []
        assert goes(driver) == []
        assert driver.schedule() == ["b on n1[0:1]"]


def test_a_multi_node_stray_is_ended_on_all_its_nodes() -> None:
    driver = spread()
    attempt, grant = driver.attempt("a"), reported_grant(driver.attempt("a").grant)
    driver.lose("n1", "n2")
    driver.report("n2")
    assert driver.report("n1", live=[Running(attempt.id, 5, 1.0, grant)]) == ["kill stray 1.1 on n1"]
    assert driver.schedule() == []
    assert late_end(driver, attempt) == ["sweep 1.1 on n2"]
    assert driver.handle(AttemptSwept(attempt.id, "n2")) == []
    assert driver.schedule() == ["b on n1[0]"]
