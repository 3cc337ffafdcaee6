"""Starts, ends and reports from hosts, and attempts on unreachable and lost nodes."""

from __future__ import annotations

from typing import NoReturn

import pytest

from qcg.pilotjob.core.attempt_end import MAX_LOSSES
from qcg.pilotjob.core.attempt_events import FORGOTTEN, UNKNOWN, host_reported, nodes_lost
from qcg.pilotjob.core.effects import Kill, Transition
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, HostReported, NodesLost
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from tests.core.core_driver import CoreDriver, job, machine, node

N1: list[NodeGrant] = [("n1", (0,), ())]


def started(attempt_id: str, grant: list[NodeGrant] = N1) -> AttemptStarted:
    return AttemptStarted(Started(attempt_id, 77, 5.0, grant))


def ended(attempt_id: str, exit_code: int = 0, reason: str = "exit") -> AttemptEnded:
    return AttemptEnded(Ended(attempt_id, 9.0, exit_code, reason, "", 77, 5.0))


def busy(*names: str, cores: int = 4, rerun_lost: bool = False) -> CoreDriver:
    """Jobs of these names, all scheduled."""
    driver = CoreDriver(machine(cores), rerun_lost=rerun_lost)
    driver.submit(*[job(name) for name in names])
    driver.schedule()
    return driver


def test_an_attempt_starts_and_ends() -> None:
    driver = busy("a")
    assert driver.start("a") == ["a EXECUTING"]
    assert (driver.attempt("a").pid, driver.attempt("a").started) == (1000, 3.0)
    attempt = driver.attempt("a")
    assert driver.end("a") == ["a SUCCEED", "all done"]
    end = driver.effects[0]
    assert isinstance(end, Transition)
    assert (end.attempt, end.exit_code) == (attempt, 0)


ENDS = [
    (0, "exit", "", "a SUCCEED"),
    (3, "exit", "", "a FAILED: exit code 3"),
    (-11, "exit", "", "a FAILED: ended by signal 11 (SIGSEGV)"),
    (
        -9,
        "exit",
        "",
        "a FAILED: ended by signal 9 (SIGKILL): it was killed, most often by the system when memory runs out",
    ),
    (-35, "exit", "", "a FAILED: ended by signal 35"),
    (-15, "timeout", "the job exceeded its wall time of 3 s", "a FAILED: the job exceeded its wall time of 3 s"),
    (0, "timeout", "the job exceeded its wall time of 3 s", "a FAILED: the job exceeded its wall time of 3 s"),
    (-1, "unstartable", "there is no program 'x'", "a FAILED: there is no program 'x'"),
    (-1, "lost", "the agent was killed", "a FAILED: the agent was killed"),
    (-15, "cancel", "", "a CANCELED"),
]


@pytest.mark.parametrize(("exit_code", "reason", "message", "expected"), ENDS, ids=[end[-1] for end in ENDS])
def test_an_end_record_gives_the_job_its_final_state(exit_code: int, reason: str, message: str, expected: str) -> None:
    driver = busy("a")
    driver.start("a")
    assert driver.end("a", exit_code=exit_code, reason=reason, message=message) == [expected, "all done"]
    assert driver.core.state.pool.free_cores == 4


def test_an_attempt_that_never_started_can_end() -> None:
    driver = busy("a")
    assert driver.end("a", exit_code=-1, reason="unstartable", message="no such program") == [
        "a FAILED: no such program",
        "all done",
    ]


def test_an_iterated_job_executes_from_its_first_start_to_its_last_end() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("it", its=2))
    driver.schedule()
    assert driver.states() == {"it": "QUEUED"}
    assert driver.start("it:1") == ["it:1 EXECUTING", "it EXECUTING"]
    assert driver.start("it:0") == ["it:0 EXECUTING"]
    assert driver.end("it:0") == ["it:0 SUCCEED"]
    assert driver.end("it:1", exit_code=1) == ["it:1 FAILED: exit code 1", "it FAILED", "all done"]


def test_duplicate_records_are_ignored() -> None:
    driver = busy("a")
    attempt_id = driver.attempt("a").id
    assert driver.handle(started(attempt_id)) == ["a EXECUTING"]
    assert driver.handle(started(attempt_id)) == []
    assert driver.handle(ended(attempt_id)) == ["a SUCCEED", "all done"]
    assert driver.handle(ended(attempt_id)) == []
    assert driver.handle(started(attempt_id)) == []


def test_records_of_a_removed_job_are_ignored() -> None:
    driver = busy("a")
    attempt_id = driver.attempt("a").id
    driver.end("a")
    driver.remove("a")
    assert driver.handle(ended(attempt_id)) == []


@pytest.mark.parametrize(
    "attempt_id",
    ["1:0.1", "2.1", "2:3.1", "2:-1.1", "9.1", "1.2", "1.0", "rubbish", "", "1", "1:x.1", "1:-1.1", "01.1"],
)
def test_an_attempt_with_an_impossible_id_is_ignored_and_killed_on_its_host(attempt_id: str) -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a"), job("it", its=3))
    assert driver.handle(started(attempt_id)) == []
    assert driver.handle(ended(attempt_id)) == []
    assert driver.report("n1", live=[Running(attempt_id, 77, 5.0, N1)]) == [f"kill stray {attempt_id} on n1"]
    assert driver.report("n1", live=[Running(attempt_id, 77, 5.0, [])]) == [f"kill stray {attempt_id} on n1"]


def test_a_start_of_an_unknown_attempt_is_accepted() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"))
    assert driver.handle(started("1.1", [("n1", (1,), ())])) == ["a SCHEDULED", "a EXECUTING"]
    assert driver.schedule() == ["b on n1[0]"]
    assert driver.end("a") == ["a SUCCEED"]


def test_an_end_record_reports_a_start_that_was_not_reported_before() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    driver.schedule()
    attempt = driver.attempt("a")
    driver.now = 9.0
    effects = driver.core.handle(AttemptEnded(Ended(attempt.id, 9.0, 0, "exit", "", 77, 8.5)), 9.0)
    assert [(effect.state.name, effect.at) for effect in effects if isinstance(effect, Transition)] == [
        ("EXECUTING", 8.5),
        ("SUCCEED", 9.0),
    ]
    assert (attempt.pid, attempt.started) == (77, 8.5)


def test_an_end_of_an_unknown_attempt_is_accepted() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("it", its=2))
    assert driver.handle(ended("1.1")) == ["a SCHEDULED", "a EXECUTING", "a SUCCEED"]
    assert driver.handle(ended("2:1.1", 4)) == [
        "it:1 SCHEDULED",
        "it:1 EXECUTING",
        "it EXECUTING",
        "it:1 FAILED: exit code 4",
    ]
    assert driver.schedule() == ["it:0 on n1[0]"]


def test_an_end_of_an_unknown_attempt_carries_its_grant_and_start_time() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"))
    effects = driver.core.handle(AttemptEnded(Ended("1.1", 9.0, 0, "exit", "", 77, 5.0, [("n1", (1,), ())])), 9.0)
    moves = [effect for effect in effects if isinstance(effect, Transition)]
    assert [(move.state.name, move.at) for move in moves] == [("SCHEDULED", 5.0), ("EXECUTING", 5.0), ("SUCCEED", 9.0)]
    assert [str(move.attempt.grant) for move in moves if move.attempt] == ["n1[1]"] * 3
    assert driver.core.state.pool.free_cores == 2


def test_an_end_counts_even_if_its_node_has_left_the_run() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    elsewhere = AttemptEnded(Ended("1.1", 9.0, 0, "exit", "", 77, 5.0, [("elsewhere", (3,), ())]))
    assert driver.handle(elsewhere) == ["a SCHEDULED", "a EXECUTING", "a SUCCEED", "all done"]
    assert driver.core.state.pool.free_cores == 1


def test_the_end_of_a_multi_node_attempt_does_not_count_if_a_node_has_left_the_run() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    partly = AttemptEnded(Ended("1.1", 9.0, 0, "exit", "", 77, 5.0, [("n1", (0,), ()), ("elsewhere", (3,), ())]))
    assert driver.handle(partly) == [
        "a SCHEDULED",
        "a FAILED: the node it ran on is not part of this run any more",
        "all done",
    ]
    assert driver.core.state.pool.free_cores == 1


def test_an_unknown_attempt_that_was_lost_is_repeated_as_the_next_attempt() -> None:
    driver = CoreDriver(machine(2), rerun_lost=True)
    driver.submit(job("a"))
    assert driver.handle(ended("1.1", -1, "lost")) == ["a SCHEDULED", "a EXECUTING", "requeued a", "a QUEUED"]
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_an_adopted_attempt_of_a_waiting_job_continues_whatever_happens_to_its_prerequisites() -> None:
    """The prerequisite must have succeeded before the attempt started; its end record has not arrived yet."""
    for final, exit_code in [("a SUCCEED", 0), ("a FAILED: exit code 1", 1)]:
        driver = CoreDriver(machine(2))
        driver.submit(job("a"), job("b", after="a"))
        assert driver.handle(started("2.1")) == ["b SCHEDULED", "b EXECUTING"]
        assert driver.handle(ended("1.1", exit_code)) == ["a SCHEDULED", "a EXECUTING", final]
        assert driver.schedule() == []
        assert driver.end("b") == ["b SUCCEED", "all done"]


def test_an_adopted_attempt_holds_its_gpus_and_memory() -> None:
    driver = CoreDriver([node("n1", 4, gpus=2, memory=100)])
    driver.submit(job("a", 1, gpus=1, memory=70), job("b", 1, gpus=2), job("c", 1, memory=50), job("d", 1, gpus=1))
    driver.handle(started("1.1", [("n1", (2,), ("0",))]))
    assert driver.schedule() == ["d on n1[0]"]
    assert driver.attempt("d").grant.parts[0].gpus == ("1",)


def test_a_core_claimed_by_two_attempts_is_not_free_when_the_first_ends() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b"), job("c"))
    driver.schedule()
    driver.handle(started("2.1"))
    driver.end("a")
    assert driver.schedule() == []
    driver.end("b")
    assert driver.schedule() == ["c on n1[0]"]


def test_an_attempt_on_a_node_outside_the_run_is_lost_and_killed() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"))
    elsewhere = Running("1.1", 7, 5.0, [("elsewhere", (0,), ())])
    assert driver.report("n1", live=[elsewhere]) == [
        "a SCHEDULED",
        "a FAILED: the node it ran on is not part of this run any more",
        "b OMITTED: it waits for 'a', which is FAILED",
        "all done",
        "kill stray 1.1 on n1",
    ]


def test_an_attempt_that_never_reached_its_agent_is_queued_again() -> None:
    driver = busy("a", "b", cores=1)
    assert driver.report("n1") == ["requeued a", "a QUEUED"]
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]
    assert driver.end("a") == ["a SUCCEED"]


def test_a_started_attempt_unknown_to_its_agent_is_lost() -> None:
    driver = busy("a", cores=1)
    driver.start("a")
    assert driver.report("n1") == [f"a FAILED: {FORGOTTEN}", "all done"]


def test_a_started_attempt_unknown_to_its_agent_is_repeated_with_rerun_lost() -> None:
    driver = busy("a", cores=1, rerun_lost=True)
    driver.start("a")
    assert driver.report("n1") == ["requeued a", "a QUEUED"]


def test_an_iteration_that_never_reached_its_agent_keeps_its_order() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=4))
    driver.schedule()
    assert driver.report("n1", live=[driver.running("it:1")]) == [
        "requeued it:0",
        "it:0 QUEUED",
        "it:1 EXECUTING",
        "it EXECUTING",
    ]
    assert driver.schedule() == ["it:0 (attempt 2) on n1[0]"]
    driver.end("it:1")
    assert driver.schedule() == ["it:2 on n1[1]"]


def test_an_adopted_iteration_that_is_queued_again_keeps_its_order() -> None:
    driver = CoreDriver(machine(1), rerun_lost=True)
    driver.submit(job("it", its=4))
    driver.handle(started("1:2.1"))
    driver.lose("n1")
    driver.report("n1")
    for name in ["it:0", "it:1", "it:2 (attempt 2)", "it:3"]:
        assert driver.schedule() == [f"{name} on n1[0]"]
        driver.end(name.split(" ")[0])


def test_a_killed_attempt_that_never_reached_its_agent_is_canceled() -> None:
    driver = busy("a")
    driver.cancel("a")
    assert driver.report("n1") == ["a CANCELED", "all done"]


def test_a_killed_attempt_still_live_on_its_agent_is_killed_again() -> None:
    driver = busy("a")
    driver.cancel("a")
    assert driver.report("n1", live=[driver.running("a")]) == ["a EXECUTING", "kill a"]


def test_an_unknown_live_attempt_is_adopted() -> None:
    driver = CoreDriver(machine(2), available=False)
    driver.submit(job("a"), job("b"))
    assert driver.report("n1", live=[Running("2.1", 77, 5.0, N1)]) == ["b SCHEDULED", "b EXECUTING"]
    assert driver.schedule() == ["a on n1[1]"]


def test_an_unknown_attempt_that_has_not_started_is_adopted_as_scheduled() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"))
    assert driver.report("n1", live=[Running("1.1", 0, 0.0, N1)]) == ["a SCHEDULED", "retract a"]
    assert driver.start("a") == ["a EXECUTING"]


def test_an_attempt_of_this_manager_that_has_not_started_is_left_alone_when_its_host_connects_again() -> None:
    driver = CoreDriver(machine(2), available=False)
    driver.submit(job("a"))
    driver.report("n1")
    assert driver.schedule() == ["a on n1[0]"]
    assert driver.report("n1", live=[Running("1.1", 0, 0.0, N1)]) == []
    assert driver.start("a") == ["a EXECUTING"]


def unsure() -> CoreDriver:
    """A driver with an adopted attempt that was reported without its grant."""
    driver = CoreDriver(machine(2))
    driver.submit(job("a"))
    assert driver.report("n1", live=[Running("1.1", 0, 0.0, [])]) == ["a SCHEDULED", "retract a"]
    return driver


def test_an_attempt_reported_without_grant_can_be_killed() -> None:
    driver = unsure()
    assert driver.cancel("a")[0] == "kill a"
    kill = driver.effects[0]
    assert isinstance(kill, Kill)
    assert kill.attempt.grant.parts[0].node == "n1"


def test_an_attempt_reported_without_grant_is_lost_with_its_node() -> None:
    assert unsure().lose("n1") == [f"a FAILED: the node is gone; {UNKNOWN}", "all done"]


def test_an_attempt_reported_without_grant_is_queued_again_when_its_agent_forgets_it() -> None:
    assert unsure().report("n1") == ["requeued a", "a QUEUED"]


def test_a_live_attempt_without_a_job_is_killed() -> None:
    driver = busy("a")
    live = driver.running("a")
    driver.end("a")
    assert driver.report("n1", live=[live]) == [f"kill stray {live.id} on n1"]


def test_a_report_of_an_agent_concerns_only_its_own_nodes() -> None:
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a"), job("b"))
    driver.schedule()
    assert driver.report("n2") == ["requeued b", "b QUEUED"]
    assert driver.states() == {"a": "SCHEDULED", "b": "QUEUED"}


def test_a_known_attempt_may_be_reported_by_any_agent() -> None:
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a"))
    driver.schedule()
    assert driver.report("n2", live=[driver.running("a")]) == ["a EXECUTING"]


def test_an_attempt_on_an_unknown_node_is_lost_and_uses_up_its_id() -> None:
    driver = CoreDriver(machine(1), rerun_lost=True)
    driver.submit(job("a"))
    assert driver.handle(started("1.1", [("elsewhere", (0,), ())])) == ["a SCHEDULED", "requeued a", "a QUEUED"]
    assert driver.handle(ended("1.1")) == []
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_attempts_on_a_lost_node_fail() -> None:
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a"), job("b"), job("c", after="a"), job("d"))
    driver.schedule()
    driver.start("a")
    assert driver.lose("n1", message="node n1 is gone") == [
        "a FAILED: node n1 is gone",
        "c OMITTED: it waits for 'a', which is FAILED",
    ]
    assert driver.schedule() == []
    driver.end("b")
    assert driver.schedule() == ["d on n2[0]"]


def test_the_message_of_an_unstarted_attempt_on_a_lost_node_says_that_its_start_is_unknown() -> None:
    driver = busy("a", "b")
    driver.start("a")
    assert driver.lose("n1", message="node lost") == [
        "a FAILED: node lost",
        "b FAILED: node lost; whether it had started is unknown",
        "all done",
    ]


def test_attempts_on_a_lost_node_are_repeated_elsewhere_with_rerun_lost() -> None:
    driver = CoreDriver(machine(1, 1), rerun_lost=True)
    driver.submit(job("a"), job("it", its=1), job("c"))
    driver.schedule()
    driver.start("a", "it:0")
    assert driver.lose("n1") == ["requeued a", "a QUEUED"]
    assert driver.lose("n2") == ["requeued it:0", "it:0 QUEUED"]
    driver.report("n2")
    assert driver.schedule() == ["a (attempt 2) on n2[0]"]
    assert driver.attempt("a").id == "1.2"
    driver.report("n1")
    assert driver.schedule() == ["it:0 (attempt 2) on n1[0]"]
    assert driver.attempt("it:0").id == "2:0.2"


def test_a_killed_attempt_on_a_lost_node_is_canceled_and_not_repeated() -> None:
    driver = busy("a", rerun_lost=True)
    driver.cancel("a")
    assert driver.lose("n1", message="gone") == [f"a CANCELED: gone; {UNKNOWN}", "all done"]


def test_a_late_end_of_a_lost_attempt_is_ignored() -> None:
    for rerun_lost in (False, True):
        driver = busy("a", rerun_lost=rerun_lost)
        driver.lose("n1")
        before = driver.states()
        assert driver.handle(ended("1.1")) == []
        assert driver.states() == before


def test_events_of_an_unknown_node_are_ignored() -> None:
    driver = busy("a")
    assert driver.lose("elsewhere") == []
    assert driver.report("elsewhere") == []


def test_a_job_fails_after_too_many_lost_attempts():
    driver = CoreDriver(machine(1), rerun_lost=True)
    driver.submit(job("a"))
    for _ in range(MAX_LOSSES - 1):
        driver.schedule()
        assert driver.lose("n1")[-1] == "a QUEUED"
        driver.report("n1")
    driver.schedule()
    assert driver.lose("n1")[0] == f"a FAILED: the node is gone; {UNKNOWN}"


def test_attempts_that_never_arrived_do_not_count_as_lost():
    driver = CoreDriver(machine(1), rerun_lost=True)
    driver.submit(job("a"))
    for _ in range(MAX_LOSSES):
        driver.schedule()
        assert driver.report("n1")[-1] == "a QUEUED"
    driver.schedule()
    assert driver.lose("n1")[-1] == "a QUEUED"


class NotWalked(dict[str, Attempt]):
    """A dictionary of attempts that must not be iterated: there are too many of them."""

    def values(self) -> NoReturn:
        raise AssertionError("all runs are looked at")


def test_an_event_of_one_node_costs_only_the_attempts_of_that_node() -> None:
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a"), job("b"))
    driver.schedule()
    core = driver.core.state
    core.attempts = NotWalked(core.attempts)
    host_reported(core, HostReported(["n1"], []))
    nodes_lost(core, NodesLost(["n2"], "gone"))
    assert list(core.attempts) == []
