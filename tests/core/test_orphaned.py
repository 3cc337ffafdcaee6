"""Attempts of an earlier manager on cores or nodes that have left the run."""

from __future__ import annotations

from qcg.pilotjob.core import sanity
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, NodesLost
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.host.records import Ended, Running, Started
from tests.core.core_driver import CoreDriver, effect_text, job, machine, reported_grant
from tests.core.restart import resume, save_state

FEWER = "n1 has fewer cores in this run now, and it ran on some that are gone"
GONE = "the node it ran on is not part of this run any more"


def busy(*, rerun_lost: bool = False) -> CoreDriver:
    """`it:0` to `it:2` on a core each, and `it:3` waits."""
    driver = CoreDriver(machine(3), rerun_lost=rerun_lost)
    driver.submit(job("it", its=4))
    driver.schedule()
    return driver


def resume_on(driver: CoreDriver, nodes: list[NodeSpec]) -> CoreDriver:
    """Resume with one agent for all nodes, which has not reported yet."""
    other = CoreDriver([], available=False)
    other.now = driver.now
    state = driver.core.state
    other.core, effects = resume(
        save_state(state), nodes, driver.now, rerun_lost=state.rerun_lost, fallback_node=nodes[0].name
    )
    assert [effect_text(effect) for effect in effects] == [], "nothing is given up before its agent is asked"
    sanity.check(other.core.state)
    return other


def ended(driver: CoreDriver, name: str, exit_code: int = 0) -> AttemptEnded:
    attempt = driver.attempt(name)
    return AttemptEnded(Ended(attempt.id, 50.0, exit_code, "exit", "", 1000, 40.0))


def test_an_orphaned_attempt_that_has_ended_has_the_result_that_its_agent_reports() -> None:
    driver = busy()
    other = resume_on(driver, machine(1))
    assert other.handle(ended(other, "it:2")) == ["it:2 EXECUTING", "it EXECUTING", "it:2 SUCCEED"]
    assert other.handle(ended(other, "it:1", 3)) == ["it:1 EXECUTING", "it:1 FAILED: exit code 3"]
    assert other.report("n1", live=[other.running("it:0")]) == ["it:0 EXECUTING"]
    assert other.core.state.pool.free_cores == 0
    other.end("it:0")
    assert other.schedule() == ["it:3 on n1[0]"]


def test_an_orphaned_attempt_that_never_started_is_queued_again() -> None:
    other = resume_on(busy(), machine(1))
    assert other.report("n1", live=[other.running("it:0")]) == [
        "it:0 EXECUTING",
        "it EXECUTING",
        "requeued it:1",
        "it:1 QUEUED",
        "requeued it:2",
        "it:2 QUEUED",
    ]


def test_an_orphaned_attempt_that_runs_is_stopped_first_and_then_lost() -> None:
    driver = busy()
    driver.start("it:0", "it:1", "it:2")
    other = resume_on(driver, machine(1))
    live = [other.running(name) for name in ("it:0", "it:1", "it:2")]
    assert other.report("n1", live=live) == ["stop it:1: lost", "stop it:2: lost"]
    assert str(other.attempt("it:2").grant) == "n1[2]", "as it was given, for the report"
    assert other.end("it:1", exit_code=-15, reason="lost", message=FEWER) == [f"it:1 FAILED: {FEWER}"]
    assert other.end("it:2") == ["it:2 SUCCEED"], "it was quicker"
    assert other.schedule() == []
    other.end("it:0")
    assert other.schedule() == ["it:3 on n1[0]"]


def test_an_orphaned_attempt_is_repeated_with_rerun_lost_once_it_has_ended() -> None:
    driver = busy(rerun_lost=True)
    driver.start("it:2")
    other = resume_on(driver, machine(2))
    other.report("n1", live=[other.running(name) for name in ("it:0", "it:1", "it:2")])
    assert other.schedule() == []
    assert other.end("it:2", exit_code=-15, reason="lost", message=FEWER) == ["requeued it:2", "it:2 QUEUED"]
    other.end("it:0")
    assert other.schedule() == ["it:2 (attempt 2) on n1[0]"]


def test_the_orphan_reason_names_the_missing_resource() -> None:
    driver = busy()
    driver.start("it:2")
    for nodes, reason in ((machine(2), FEWER), ([NodeSpec("x", (0, 1, 2))], GONE)):
        other = resume_on(driver, nodes)
        other.report(nodes[0].name, live=[other.running("it:2")])
        assert [
            getattr(effect, "message", None) for effect in other.effects if effect_text(effect).startswith("stop")
        ] == [reason]


def test_prefilled_orphaned_attempts_are_retracted_or_stopped_if_they_have_started() -> None:
    other = resume_on(busy(), machine(1))
    waiting = Running(other.attempt("it:1").id, 0, 0.0, reported_grant(other.attempt("it:1").grant))
    assert other.report("n1", live=[other.running("it:0"), waiting]) == [
        "it:0 EXECUTING",
        "it EXECUTING",
        "requeued it:2",
        "it:2 QUEUED",
        "retract it:1",
    ]
    attempt = other.attempt("it:1")
    assert other.handle(AttemptStarted(Started(attempt.id, 1000, 9.0, reported_grant(attempt.grant)))) == [
        "it:1 EXECUTING",
        "stop it:1: lost",
    ]


def test_an_attempt_on_nodes_outside_the_run_ends_when_the_fallback_agent_reports_it() -> None:
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("wide", nodes=2), job("next"))
    driver.schedule()
    driver.start("wide")
    other = resume_on(driver, [NodeSpec("x", (0,))])
    assert other.handle(ended(other, "wide")) == ["wide SUCCEED"]
    other.report("x")
    assert other.schedule() == ["next on x[0]"]


def test_an_orphaned_attempt_is_lost_with_its_agent() -> None:
    driver = busy()
    driver.start("it:0", "it:1", "it:2")
    other = resume_on(driver, [NodeSpec("x", (0, 1, 2))])
    lost = other.handle(NodesLost(["x"], "the agent is gone"))
    assert lost == [f"it:{index} FAILED: the agent is gone" for index in range(3)]


def test_an_unknown_attempt_on_missing_cores_is_stopped() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    other = resume_on(driver, machine(1))
    elsewhere = Running("1.1", 7, 5.0, [("elsewhere", (0,), ())])
    assert other.report("n1", live=[elsewhere]) == ["a SCHEDULED", "a EXECUTING", "stop a: lost"]
    assert other.schedule() == []
