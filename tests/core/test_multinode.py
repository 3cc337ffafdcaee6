"""A run on several nodes is over when it is over on all of them; what nobody wants keeps its cores until it is gone."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.events import AttemptEnded, AttemptSwept
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, Running
from tests.core.desk import Desk, job, machine, told


def spread(*, rerun_lost: bool = False, nodes: int = 2) -> Desk:
    """`a` runs on all nodes, one core each; `b` wants the core of n2 or any other."""
    desk = Desk(machine(*[1] * nodes), rerun_lost=rerun_lost, sweeping=False)
    desk.submit(job("a", nodes=nodes))
    assert len(desk.schedule()) == 1
    desk.start("a")
    desk.submit(job("b"))
    return desk


def late_end(desk: Desk, attempt: Attempt, reason: str = "cancel") -> list[str]:
    return desk.tell(AttemptEnded(Ended(attempt.id, desk.now, -15, reason, "", 1000, desk.now)))


def test_its_end_counts_when_its_other_nodes_have_nothing_of_it_any_more() -> None:
    desk = spread(nodes=3)
    assert desk.end("a") == ["sweep 1.1 on n2", "sweep 1.1 on n3"]
    assert desk.states()["a"] == "EXECUTING"
    assert desk.sweep("a", "n3") == []
    assert desk.schedule() == [], "its cores are not given away before"
    assert desk.sweep("a", "n2") == ["a SUCCEED"]
    assert desk.schedule() == ["b on n1[0]"]


def test_an_answer_that_comes_twice_or_too_late_is_passed_over() -> None:
    desk = spread()
    attempt = desk.attempt("a")
    desk.end("a")
    desk.sweep("a", "n2")
    assert desk.tell(AttemptSwept(attempt.id, "n2")) == []
    assert desk.tell(AttemptSwept("77.1", "n2")) == []


def test_success_is_not_believed_while_a_node_is_away_and_counts_when_it_is_back() -> None:
    desk = spread()
    desk.silent("n2")
    assert desk.end("a") == ["sweep 1.1 on n2"]
    assert desk.states()["a"] == "EXECUTING"
    assert desk.report("n2") == ["sweep 1.1 on n2"], "it is asked again: the question may not have reached it"
    assert desk.sweep("a", "n2") == ["a SUCCEED"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_end_is_a_loss_when_the_node_that_was_away_is_lost(exit_code: int) -> None:
    """A launcher says 0 when one of its nodes dies, or whatever it likes."""
    desk = spread()
    desk.silent("n2")
    desk.end("a", exit_code=exit_code)
    assert desk.lose("n2", message="node lost: n2") == ["a FAILED: node lost: n2"]
    again = spread(rerun_lost=True)
    again.silent("n2")
    again.end("a", exit_code=exit_code)
    assert again.lose("n2") == ["requeued a", "a QUEUED"]


def test_a_wall_time_that_was_over_and_a_cancel_stay_what_they_are_when_a_node_is_lost() -> None:
    desk = spread()
    desk.end("a", exit_code=-15, reason="timeout", message="too long")
    assert desk.lose("n2") == ["a FAILED: too long"]
    desk = spread()
    desk.cancel("a")
    desk.end("a", exit_code=-15, reason="cancel")
    assert desk.lose("n2") == ["a CANCELED: the node is gone"]


def test_a_success_that_all_have_told_stays_one_when_a_node_is_lost_afterwards() -> None:
    desk = spread(nodes=3)
    desk.end("a")
    desk.sweep("a", "n2")
    assert desk.lose("n1", "n2") == []
    assert desk.sweep("a", "n3") == ["a SUCCEED"]


def test_when_a_node_is_lost_the_rest_of_the_run_is_ended_before_its_cores_are_given_away() -> None:
    desk = spread(nodes=3)
    assert desk.lose("n2") == ["stop a: lost"]
    assert desk.schedule() == []
    assert desk.end("a", exit_code=-15, reason="lost", message="the node is gone") == ["sweep 1.1 on n3"]
    assert desk.sweep("a", "n3") == ["a FAILED: the node is gone"]
    assert desk.schedule() == ["b on n1[0]"]


def test_when_its_first_node_is_lost_the_others_end_what_they_have() -> None:
    desk = spread(rerun_lost=True)
    attempt = desk.attempt("a")
    assert desk.lose("n1") == ["sweep 1.1 on n2"]
    assert desk.schedule() == []
    assert desk.tell(AttemptSwept(attempt.id, "n2")) == ["requeued a", "a QUEUED"]
    assert desk.schedule() == ["b on n2[0]"]


def test_when_all_its_nodes_are_lost_nobody_is_asked() -> None:
    assert spread().lose("n1", "n2") == ["a FAILED: the node is gone"]


def test_a_first_node_that_comes_back_while_the_others_are_still_asked_ends_its_part() -> None:
    desk = spread()
    desk.lose("n1")
    assert desk.report("n1", live=[desk.running("a")]) == ["stop a: lost"]
    assert desk.sweep("a", "n2") == []
    assert desk.end("a", exit_code=-15, reason="cancel") == ["a FAILED: the node is gone"]


def test_a_node_that_was_given_up_and_comes_back_is_asked_too() -> None:
    desk = spread()
    desk.lose("n2")
    assert desk.report("n2") == []
    assert desk.end("a", exit_code=-15, reason="lost", message="x") == ["sweep 1.1 on n2"]
    assert desk.sweep("a", "n2") == ["a FAILED: x"]


def test_an_agent_that_forgot_a_run_that_is_to_end_has_ended_it() -> None:
    desk = spread()
    desk.lose("n2")
    assert desk.report("n1") == ["a FAILED: the node is gone"]


# -- runs that nobody wants --------------------------------------------------------------------------------------


def test_what_a_lost_node_still_runs_when_it_comes_back_keeps_its_cores_until_it_is_gone() -> None:
    desk = Desk(machine(2))
    desk.submit(job("a"), job("b", 2))
    desk.schedule()
    desk.start("a")
    attempt, running = desk.attempt("a"), desk.running("a")
    desk.lose("n1")
    assert desk.report("n1", live=[running]) == ["kill stray 1.1 on n1"]
    assert desk.schedule() == [], "one core is still in use"
    assert desk.report("n1", live=[running]) == ["kill stray 1.1 on n1"], "told again"
    assert late_end(desk, attempt) == []
    assert desk.schedule() == ["b on n1[0:1]"]


def test_a_stray_whose_agent_does_not_know_it_any_more_or_whose_node_is_lost_holds_nothing() -> None:
    for goes in (lambda desk: desk.report("n1"), lambda desk: [*desk.lose("n1"), *desk.report("n1")]):
        desk = Desk(machine(2))
        desk.submit(job("b", 2))
        assert desk.report("n1", live=[Running("9.1", 5, 1.0, [("n1", (0,), ())])]) == ["kill stray 9.1 on n1"]
        assert desk.schedule() == []
        assert goes(desk) == []
        assert desk.schedule() == ["b on n1[0:1]"]


def test_a_stray_on_several_nodes_is_ended_on_all_of_them() -> None:
    desk = spread()
    attempt, grant = desk.attempt("a"), told(desk.attempt("a").grant)
    desk.lose("n1", "n2")
    desk.report("n2")
    assert desk.report("n1", live=[Running(attempt.id, 5, 1.0, grant)]) == ["kill stray 1.1 on n1"]
    assert desk.schedule() == []
    assert late_end(desk, attempt) == ["sweep 1.1 on n2"]
    assert desk.tell(AttemptSwept(attempt.id, "n2")) == []
    assert desk.schedule() == ["b on n1[0]"]
