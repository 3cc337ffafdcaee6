"""Explanations of job states, as a sentence and as details."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from qcg.pilotjob.core.arrival_order import ArrivalOrder
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.events import AttemptEnded, Hold, HostReported, HostUnreachable, Release
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.jobs_ahead import JobsAhead
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.queue import QueueEntry
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.why import (
    Reason,
    WaitExplainer,
    iteration_counts,
    representative_iteration,
    why_ended,
    why_under_way,
)
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Ended
from tests.core.core_driver import CoreDriver, job, machine, node
from tests.core.restart import resume, save_state


def why(driver: CoreDriver, name: str, *, stalled: bool = False) -> Reason:
    found = find(driver.core.state, name)
    assert not isinstance(found, str), found
    asked, position = found
    assert asked.spec is not None
    description = msgspec.msgpack.decode(asked.spec, type=JobDescription)
    return WaitExplainer(driver.core.state, driver.now, stalled=stalled).why_waiting(asked, position, description)


def patient(patience: float, *cores: int) -> CoreDriver:
    driver = CoreDriver(machine(*cores), available=False)
    driver.core = Core(machine(*cores), patience=patience)
    driver.handle(HostReported([f"n{number}" for number in range(1, len(cores) + 1)], []))
    return driver


# -- dependencies ----------------------------------------------------------------------------------------------


def test_a_job_waits_for_another_one():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a"))
    driver.schedule()
    reason = why(driver, "b")
    assert (reason.kind, reason.sentence) == ("dependencies", "it waits for 'a', which is SCHEDULED")
    assert reason.details == {"after": [{"name": "a", "status": "SCHEDULED"}]}
    driver.start("a")
    assert why(driver, "b").sentence == "it waits for 'a', which is EXECUTING"


def test_met_prerequisites_are_not_named():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", 2), job("c", after="a b"))
    driver.schedule()
    driver.end("a")
    assert why(driver, "c").sentence == "it waits for 'b', which is QUEUED"


def test_a_later_job_with_the_name_of_a_removed_prerequisite_is_not_named():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"), job("c", after="a b"))
    driver.schedule()
    driver.end("a")
    driver.remove("a")
    driver.submit(job("a", 2))
    assert why(driver, "c").sentence == "it waits for 'b', which is SCHEDULED"


def test_a_prerequisite_that_is_held_is_named_as_held():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a"))
    driver.handle(Hold(["a"]))
    assert why(driver, "b").sentence == "it waits for 'a', which is held"
    driver.handle(Release(["a"]))
    assert why(driver, "b").sentence == "it waits for 'a', which is QUEUED"


def test_three_of_many_prerequisites_are_named_and_the_details_list_all():
    driver = CoreDriver(machine(1))
    names = list("abcde")
    driver.submit(*[job(name) for name in names], job("last", after=" ".join(names)))
    reason = why(driver, "last")
    assert reason.sentence == (
        "it waits for 'a', which is QUEUED; 'b', which is QUEUED; 'c', which is QUEUED; and 2 more"
    )
    assert [entry["name"] for entry in reason.details["after"]] == names


def test_a_single_iteration_is_named_with_its_index():
    driver = CoreDriver(machine(1))
    driver.submit(job("a", its=range(5, 8)), job("b", after="a:6"))
    assert why(driver, "b").sentence == "it waits for 'a:6', which is QUEUED"


def test_an_iteration_waits_for_the_one_with_its_own_index():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=range(9)), job("b", its=range(2, 8, 2), after="a:${it}"))
    driver.schedule()
    assert why(driver, "b:4").sentence == "it waits for 'a:4', which is QUEUED"


# -- resources ----------------------------------------------------------------------------------------------

GPUS = [node("n1", 4, gpus=2), node("n2", 4, gpus=1)]

FULL: list[tuple[list[NodeSpec], JobDescription, JobDescription, str]] = [
    (machine(4), job("taken", 3), job("asked", 2), "it needs 2 cores, and 1 of 4 is free"),
    (machine(4), job("taken", 4), job("asked"), "it needs 1 core, and 0 of 4 are free"),
    (machine(4), job("taken", 3), job("asked", (2, 4)), "it needs at least 2 cores, and 1 of 4 is free"),
    (machine(4), job("taken", 3), job("asked", (2, None)), "it needs at least 2 cores, and 1 of 4 is free"),
    (
        machine(3, 2),
        job("taken", 2),
        job("asked", 3, one=True),
        "it needs 3 cores on one node, and no such node has more than 2 of its cores free",
    ),
    (machine(2, 2), job("taken"), job("asked", nodes=2), "it needs 2 whole nodes, and 1 of 2 is free"),
    (machine(2, 2), job("taken"), job("asked", nodes=(2, 3)), "it needs at least 2 whole nodes, and 1 of 2 is free"),
    (machine(2, 2), job("taken"), job("asked", 2, 2), "it needs 2 nodes with 2 cores each, and 1 of 2 is free"),
    (
        GPUS,
        job("taken", gpus=2),
        job("asked", gpus=2),
        "it needs 1 core on one node and 2 GPUs, and no node has 2 GPUs free",
    ),
]


@pytest.mark.parametrize(("nodes", "taken", "asked", "sentence"), FULL, ids=[sentence for *_, sentence in FULL])
def test_a_job_waits_for_resources(nodes: list[NodeSpec], taken: JobDescription, asked: JobDescription, sentence: str):
    driver = CoreDriver(nodes)
    driver.submit(taken)
    driver.schedule()
    driver.submit(asked)
    assert driver.schedule() == []
    reason = why(driver, "asked")
    assert (reason.kind, reason.sentence) == ("resources", sentence)


def test_the_details_list_wanted_free_and_total_resources():
    driver = CoreDriver(GPUS)
    driver.submit(job("taken", 3, gpus=2))
    driver.schedule()
    driver.submit(job("asked", (2, None), gpus=2))
    assert why(driver, "asked").details == {
        "wanted": {"cores": {"min": 2, "max": None}, "gpus": 2},
        "free": {"nodes": 1, "cores": 5, "gpus": 1},
        "total": {"nodes": 2, "cores": 8, "gpus": 3},
        "before": 0,
    }


def test_jobs_ahead_in_the_queue_are_counted():
    driver = CoreDriver(machine(2))
    driver.submit(job("taken", 2), job("a", 2), job("b"), job("waiting", after="a"), job("c"))
    driver.schedule()
    assert why(driver, "c").sentence == "it needs 1 core, and 0 of 2 are free; 2 jobs ahead of it"
    assert why(driver, "b").sentence == "it needs 1 core, and 0 of 2 are free; 1 job ahead of it"


def test_jobs_ahead_of_one_job_are_counted_without_visiting_all(monkeypatch: pytest.MonkeyPatch):
    driver = CoreDriver(machine(1))
    driver.submit(job("gate"), job("late", after="gate"), *[job(f"job{number}") for number in range(50)])
    driver.schedule()
    driver.end("gate")
    driver.schedule()

    def look_at_all(self: ArrivalOrder) -> Iterator[QueueEntry]:
        raise AssertionError

    monkeypatch.setattr(ArrivalOrder, "__iter__", look_at_all)
    assert why(driver, "job49").details["before"] == 49


def test_several_jobs_get_the_same_explanations_as_each_alone():
    driver = CoreDriver(machine(2))
    driver.submit(
        job("gate", 2), job("late", after="gate"), *[job(f"job{number}", 1 + number % 2) for number in range(9)]
    )
    driver.schedule()
    driver.end("gate")
    driver.submit(job("last"))
    names = ["last", *[f"job{number}" for number in range(9)], "late"]
    found = [found for name in names if not isinstance(found := find(driver.core.state, name), str)]
    queue = driver.core.state.queue
    ahead = JobsAhead(queue)
    together = [ahead.count(asked.seq) for asked, _ in found]
    assert together == [JobsAhead(queue).count(asked.seq) for asked, _ in found]
    assert together == [10, *range(1, 10), 0]


def test_a_job_that_fits_is_started_next():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", 2))
    reason = why(driver, "a")
    assert (reason.kind, reason.sentence) == ("next", "its request, 2 cores, fits: it is about to start")


def test_a_small_job_may_not_overtake_a_wide_one_that_waited_too_long():
    driver = patient(10, 2)
    driver.submit(job("first"), job("wide", 2), job("small"))
    driver.now += 20
    driver.schedule()
    driver.submit(job("late"))
    reason = why(driver, "late")
    assert reason.kind == "patience"
    assert reason.details["behind"] == "wide"
    assert reason.sentence == (
        "its request, 1 core, fits, but it may not overtake 'wide', which needs 2 cores and has"
        " waited longer than the patience of 10 s"
    )
    assert why(driver, "wide").sentence == (
        "it needs 2 cores, and 1 of 2 is free; it has waited longer than the patience of 10 s, so free resources are"
        " kept for it"
    )


def test_no_agent_means_that_nothing_can_be_started():
    driver = CoreDriver(machine(2), available=False)
    driver.submit(job("a"))
    reason = why(driver, "a")
    assert reason.kind == "agent"
    assert reason.sentence == "it waits for an agent: none is connected, so nothing can be started"


def test_a_job_waits_for_an_unreachable_node():
    driver = CoreDriver(machine(2, 2))
    driver.submit(job("a", nodes=2))
    driver.handle(HostUnreachable(["n2"]))
    reason = why(driver, "a")
    assert reason.kind == "nodes"
    assert reason.details["away"] == ["n2"]
    assert reason.sentence == (
        "it waits for nodes that are away (n2); on the available nodes: 2 nodes requested, but only 1 exists"
    )


def test_a_job_waits_while_the_journal_cannot_be_written():
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b", after="a"))
    assert why(driver, "a", stalled=True).kind == "stalled"
    assert why(driver, "b", stalled=True).kind == "dependencies"


def test_explanations_change_nothing():
    driver = patient(10, 2)
    driver.submit(job("first"), job("wide", 2), job("small", its=3), job("other", after="wide"))
    driver.schedule()
    for name in ("wide", "small:1", "other"):
        why(driver, name)
    driver.end("first")
    assert driver.schedule() == ["small:1 on n1[0]"]


# -- time and nodes --------------------------------------------------------------------------------------------------


def test_a_job_with_too_long_a_wall_time_waits_for_the_next_manager():
    driver = CoreDriver(machine(2))
    driver.deadline(100.0)
    driver.submit(job("long", wt=200), job("any"))
    reason = why(driver, "long")
    assert reason.kind == "time"
    assert reason.sentence == (
        "it waits for the next manager of this run: its wall time is 200 s, and this manager has only 97 s left"
    )
    assert (reason.details["wallTime"], reason.details["timeLeft"]) == (200.0, 97.0)
    assert why(driver, "any").kind == "next"
    driver.suspend()
    assert why(driver, "any").sentence == (
        "it waits for the next manager of this run: the time of this one is over, so nothing is started"
    )


def test_lost_nodes_are_distinguished_from_unreachable_ones():
    driver = CoreDriver(machine(1, 1, 1))
    driver.submit(job("wide", nodes=3))
    driver.lose("n2")
    reason = why(driver, "wide")
    assert (
        reason.sentence
        == "it waits for nodes that are lost (n2); on the available nodes: 3 nodes requested, but only 2 exist"
    )
    driver.silent("n3")
    assert "nodes that are away, some of them lost (n2, n3)" in why(driver, "wide").sentence
    assert (why(driver, "wide").details["away"], why(driver, "wide").details["lost"]) == (["n2", "n3"], ["n2"])


def test_a_job_that_needs_more_than_this_manager_has_waits_for_other_nodes():
    earlier = CoreDriver(machine(4), available=False)
    earlier.submit(job("wide", 4))
    driver = CoreDriver(machine(2))
    driver.core, _ = resume(save_state(earlier.core.state), machine(2), 1.0, rerun_lost=False)
    driver.report("n1")
    reason = why(driver, "wide")
    assert reason.kind == "nodes"
    assert reason.sentence == (
        "it waits for other nodes: 4 cores requested, but only 2 exist; the next manager of this run may have more"
    )


# -- attempts and ends -----------------------------------------------------------------------------------------------


def test_an_attempt_is_explained_with_its_grant_and_start_time():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", 2))
    driver.schedule()
    reason = why_under_way(driver.attempt("a"), "noon")
    assert reason.sentence == "it was given n1[0:1] at noon and is being started"
    reason = why_under_way(driver.attempt("a"), "noon", None, {"n1": "one o'clock"})
    assert reason.sentence == "it was given n1[0:1] at noon and is being started; no contact to n1 (since one o'clock)"
    driver.start("a")
    reason = why_under_way(driver.attempt("a"), "noon")
    assert reason.sentence == "it runs on n1[0:1] since noon (pid 1000)"
    assert reason.details == {"allocation": "n1[0:1]", "since": "noon", "pid": 1000}
    driver.cancel("a")
    assert why_under_way(driver.attempt("a"), "noon").sentence == "it is being killed on n1[0:1]"


def test_why_explains_that_an_attempt_waits_in_its_lane():
    driver = CoreDriver(machine(1))
    driver.submit(job("it", its=9))
    driver.schedule()
    driver.handle(AttemptEnded(Ended(driver.attempt("it:0").id, driver.now, 0, "exit", "", 7, driver.now - 0.0005)))
    driver.schedule()
    assert why_under_way(driver.attempt("it:1"), "noon").sentence == "it was given n1[0] at noon and is being started"
    reason = why_under_way(driver.attempt("it:2"), "noon")
    assert reason.sentence == "it was sent ahead to n1[0] at noon, and starts after 1 other attempt there"
    reason = why_under_way(driver.attempt("it:5"), "noon")
    assert reason.sentence == "it was sent ahead to n1[0] at noon, and starts after 4 other attempts there"
    assert reason.details == {"allocation": "n1[0]", "since": "noon", "before": 4}
    driver.cancel("it:5")
    assert why_under_way(driver.attempt("it:5"), "noon").sentence == "it is being killed on n1[0]"


def test_a_stopped_attempt_is_explained_as_to_be_repeated():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", 2))
    driver.schedule()
    driver.suspend()
    reason = why_under_way(driver.attempt("a"), "noon")
    assert (reason.kind, reason.sentence) == ("stopping", "it is being stopped on n1[0:1], and will be started again")
    driver.start("a")
    reason = why_under_way(driver.attempt("a"), "noon", silent={"n1": "10:00"})
    assert reason.kind == "running", "the order to stop has not reached its host"


def test_an_attempt_in_cleanup_names_the_nodes_it_waits_for():
    driver = CoreDriver(machine(1, 1, 1), sweeping=False)
    driver.submit(job("a", nodes=3))
    driver.schedule()
    driver.end("a")
    attempt = driver.attempt("a")
    reason = why_under_way(attempt, "noon", driver.core.state.cleanups[attempt.id])
    assert reason.kind == "leaving"
    assert reason.sentence.endswith("the end on other nodes is awaited: n2, n3")
    assert reason.details["awaited"] == ["n2", "n3"]


@pytest.mark.parametrize(
    ("state", "message", "exit_code", "kind", "sentence"),
    [
        (State.SUCCEED, "", 0, "succeeded", "it has succeeded"),
        (State.FAILED, "exit code 3", 3, "failed", "it failed: exit code 3"),
        (State.FAILED, "", None, "failed", "it failed: no reason is known"),
        (State.CANCELED, "", None, "canceled", "it was cancelled"),
        (State.CANCELED, "the service ended", -15, "canceled", "it was cancelled: the service ended"),
        (State.OMITTED, "it waits for 'a'", None, "omitted", "it was never started: it waits for 'a'"),
    ],
)
def test_a_final_job_is_explained(state: State, message: str, exit_code: int | None, kind: str, sentence: str):
    reason = why_ended(state, message, exit_code)
    assert (reason.kind, reason.sentence) == (kind, sentence)
    assert reason.details.get("exitCode") == exit_code
    assert reason.details.get("message", "") == message


def test_the_representative_iteration_waits_or_runs_or_failed():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=3))
    asked = driver.core.state.jobs["a"]
    assert (representative_iteration(asked), iteration_counts(asked)) == (0, {"QUEUED": 3})
    driver.schedule()
    assert representative_iteration(asked) == 2
    driver.end("a:0", exit_code=1)
    driver.schedule()
    driver.start("a:1", "a:2")
    assert (representative_iteration(asked), iteration_counts(asked)) == (1, {"EXECUTING": 2, "FAILED": 1})
    driver.end("a:1", "a:2")
    assert (representative_iteration(asked), iteration_counts(asked)) == (0, {"SUCCEED": 2, "FAILED": 1})


def test_a_job_whose_iterations_all_succeeded_has_no_representative():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=1))
    driver.schedule()
    driver.end("a:0")
    assert representative_iteration(driver.core.state.jobs["a"]) is None


def test_why_gives_the_expected_start_of_a_job_with_a_reservation() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("first", 3, wt=100), job("wide", 4), job("long", wt=500))
    driver.schedule()
    scheduled = driver.attempt("first").scheduled
    reason = why(driver, "wide")
    assert reason.kind == "resources"
    assert reason.sentence == (
        f"it needs 4 cores, and 1 of 4 is free; expected to start by {scheduled + 100}, when 'first' has ended on n1"
    )
    assert reason.details["expected"]["after"] == "first"
    assert not reason.details["expected"]["learned"]


def test_why_explains_that_a_job_would_delay_a_reservation() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("first", 3, wt=100), job("wide", 4), job("long", wt=500))
    driver.schedule()
    reason = why(driver, "long")
    assert reason.kind == "reservation"
    assert reason.sentence == (
        "its request, 1 core, fits, but it would delay 'wide', which is expected to start by"
        f" {driver.attempt('first').scheduled + 100}, when 'first' has ended on n1"
    )
    assert reason.details["behind"] == "wide"


def test_asking_for_reasons_changes_no_reservation() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("first", 3, wt=100), job("wide", 4))
    driver.schedule()
    why(driver, "wide")
    assert not driver.core.state.reservations
