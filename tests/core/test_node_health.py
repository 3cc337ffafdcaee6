"""Nodes that fail for reasons of their own: further attempts avoid them, and after a limit they are drained."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.errors import CoreError
from qcg.pilotjob.core.events import HostReported, Schedule
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import RetryGrowth, RetryPolicy
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state

AGAIN = RetryPolicy({"exit": 5, "signal": 5, "lost": 5})
LATER = 200.0
"""Seconds after which earlier failures do not matter any more."""


def fail_on(driver: CoreDriver, name: str, node: str, *, reason: str = "exit", code: int = 1) -> list[str]:
    """Run the next attempt of a job, which must be on this node, and let it fail."""
    if name not in [launch.split(" ")[0] for launch in driver.schedule()]:
        assert driver.core.state.jobs[name].attempt is not None
    assert driver.attempt(name).grant.parts[0].node == node
    if reason != "unstartable":
        driver.start(name)
    return driver.end(name, exit_code=code, reason=reason)


def succeed_on(driver: CoreDriver, name: str, node: str) -> list[str]:
    driver.schedule()
    assert driver.attempt(name).grant.parts[0].node == node
    driver.start(name)
    return driver.end(name)


def blame(driver: CoreDriver, name: str) -> list[str]:
    """Let a job fail on n1, and succeed on n2."""
    driver.now += LATER
    driver.submit(job(name, retry=AGAIN))
    fail_on(driver, name, "n1")
    return succeed_on(driver, name, "n2")


def notices(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("notice: ")]


# -- avoiding ---------------------------------------------------------------------------------------------------------


def test_the_next_attempt_avoids_the_node_on_which_the_last_one_failed():
    driver = CoreDriver(machine(2, 1))
    driver.submit(job("a", retry=AGAIN))
    fail_on(driver, "a", "n1")
    assert driver.schedule() == ["a (attempt 2) on n2[0]"]


def test_the_next_attempt_waits_for_a_busy_node_only_for_a_minute():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a", retry=AGAIN), job("long"))
    fail_on(driver, "a", "n1")
    failed_at = driver.now
    assert driver.schedule() == []
    driver.now = failed_at + 58
    assert driver.schedule() == []
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_a_scheduling_pass_is_asked_for_when_the_minute_is_over():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a", retry=AGAIN), job("long"))
    fail_on(driver, "a", "n1")
    failed_at = driver.now
    assert f"wake at {failed_at + 60:g}" in driver.handle(Schedule())


def test_nothing_is_avoided_when_no_other_node_could_ever_take_the_job():
    driver = CoreDriver(machine(2, 1))
    driver.submit(job("wide", 2, one=True, retry=AGAIN))
    fail_on(driver, "wide", "n1")
    assert driver.schedule() == ["wide (attempt 2) on n1[0:1]"]


def test_a_job_that_avoids_a_node_does_not_hold_up_jobs_that_do_not():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a", retry=AGAIN), job("long"), job("b"))
    fail_on(driver, "a", "n1")
    assert driver.schedule() == ["b on n1[0]"]


def test_the_node_is_avoided_after_a_restart_of_the_manager():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a", retry=AGAIN))
    fail_on(driver, "a", "n1")
    driver.core, _ = resume(save_state(driver.core.state), machine(1, 1), driver.now, rerun_lost=False)
    driver.report("n1")
    driver.report("n2")
    assert driver.schedule() == ["a (attempt 2) on n2[0]"]


def test_why_says_that_a_job_avoids_a_node():
    driver = CoreDriver(machine(1, 1))
    description = job("a", retry=AGAIN)
    driver.submit(description, job("long"))
    fail_on(driver, "a", "n1")
    failed_at = driver.now
    reason = WaitExplainer(driver.core.state, driver.now).why_waiting(driver.core.state.jobs["a"], -1, description)
    assert reason.sentence == (
        "it needs 1 core on another node than n1, where its last attempt failed;"
        f" at {failed_at + 60} it stops avoiding n1"
    )
    assert (reason.kind, reason.details["avoids"]) == ("retry", "n1")


# -- counting ---------------------------------------------------------------------------------------------------------


def test_a_node_is_drained_after_jobs_in_a_row_that_failed_there_and_succeeded_elsewhere():
    driver = CoreDriver(machine(1, 1), drain_after=2)
    assert notices(blame(driver, "a")) == []
    assert notices(blame(driver, "b")) == [
        "notice: n1 is drained: 2 jobs in a row failed there and not on other nodes; jobs that run there continue, and"
        " `qcg-pm nodes resume n1` lets new ones start"
    ]
    driver.submit(job("c"))
    assert driver.schedule() == ["c on n2[0]"]


def test_a_success_on_the_node_starts_the_count_again():
    driver = CoreDriver(machine(1, 1), drain_after=2)
    blame(driver, "a")
    driver.submit(job("fine"))
    succeed_on(driver, "fine", "n1")
    assert notices(blame(driver, "b")) == []
    assert len(notices(blame(driver, "c"))) == 1


def test_a_job_that_fails_on_every_node_counts_against_none():
    driver = CoreDriver(machine(1, 1), drain_after=1)
    driver.submit(job("a", retry=RetryPolicy({"exit": 1})))
    fail_on(driver, "a", "n1")
    assert notices(fail_on(driver, "a", "n2")) == []
    assert driver.states() == {"a": "FAILED"}


def test_failures_on_several_nodes_at_the_same_time_count_against_none():
    driver = CoreDriver(machine(1, 1), drain_after=1)
    driver.submit(job("a", retry=AGAIN), job("b", retry=AGAIN))
    fail_on(driver, "a", "n1")
    fail_on(driver, "b", "n2")
    assert driver.schedule() == ["a (attempt 2) on n2[0]", "b (attempt 2) on n1[0]"]
    driver.start("a", "b")
    assert notices(driver.end("a", "b")) == []


def test_success_with_more_resources_counts_against_no_node():
    driver = CoreDriver(machine(2, 2), drain_after=1)
    driver.submit(job("a", retry=RetryPolicy({"exit": 3}, grow=RetryGrowth(cores=2.0))))
    fail_on(driver, "a", "n1")
    assert notices(succeed_on(driver, "a", "n2")) == []


def test_the_last_node_is_not_drained_and_one_notice_reports_it():
    driver = CoreDriver(machine(1, 1), drain_after=1)
    driver.submit(job("a", retry=AGAIN), job("b"))
    fail_on(driver, "a", "n1")
    driver.end("b")
    driver.schedule()
    driver.start("a")
    driver.drain("n2")
    notice = (
        "notice: n1 would be drained, but no other node can be used: 1 job in a row failed there and not on other nodes"
    )
    assert notices(driver.end("a")) == [notice]


def test_with_a_limit_of_zero_no_node_is_drained():
    driver = CoreDriver(machine(1, 1), drain_after=0)
    assert [notices(blame(driver, name)) for name in "abcdef"] == [[]] * 6


# -- jobs that cannot be started --------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_started_is_tried_once_on_another_node():
    driver = CoreDriver(machine(1, 1), drain_after=5)
    driver.submit(job("typo"))
    fail_on(driver, "typo", "n1", reason="unstartable", code=-1)
    lines = fail_on(driver, "typo", "n2", reason="unstartable", code=-1)
    assert lines[0].startswith("typo FAILED")
    assert "(attempt 2)" in lines[0]


def test_a_node_is_drained_when_it_cannot_start_jobs_that_another_node_can_start():
    driver = CoreDriver(machine(1, 1), drain_after=2)
    for name in "ab":
        driver.now += LATER
        driver.submit(job(name))
        fail_on(driver, name, "n1", reason="unstartable", code=-1)
        lines = fail_on(driver, name, "n2")  # the job has an error of its own, but it was started
    assert len(notices(lines)) == 1
    assert driver.states() == {"a": "FAILED", "b": "FAILED"}


def test_an_iterated_job_is_not_tried_again_and_again():
    driver = CoreDriver(machine(1, 1), drain_after=5)
    driver.submit(job("typo", its=4))
    attempts = 0
    while driver.schedule() or driver.core.state.attempts:
        for attempt in list(driver.core.state.attempts.values()):
            attempts += 1
            driver.end(f"typo:{attempt.position}", exit_code=-1, reason="unstartable")
    assert driver.states() == {"typo": "FAILED"}
    assert attempts < 8


# -- losses -----------------------------------------------------------------------------------------------------------


def test_a_node_that_was_lost_is_not_avoided_when_it_is_back():
    driver = CoreDriver(machine(1, 1), rerun_lost=True)
    driver.submit(job("a"), job("long"))
    assert driver.schedule() == ["a on n1[0]", "long on n2[0]"]
    driver.lose("n1")
    driver.report("n1")
    assert driver.schedule() == ["a (attempt 2) on n1[0]"]


def test_a_node_that_is_lost_again_and_again_is_drained():
    driver = CoreDriver(machine(2, 1), drain_after=2, rerun_lost=True)
    driver.submit(job("long", nodes=1), job("a"))
    driver.schedule()
    lines: list[str] = []
    for name in ("b", "c"):
        driver.submit(job(f"{name}1", 1), job(f"{name}2", 1))
        driver.schedule()
        lines += driver.lose("n1")
        driver.report("n1")
        driver.now += 61
        driver.schedule()
    assert notices(lines) == [
        "notice: n1 is drained: it was lost 2 times under its jobs; jobs that run there continue, and"
        " `qcg-pm nodes resume n1` lets new ones start"
    ]


def test_nodes_of_one_host_that_are_lost_together_are_not_drained():
    driver = CoreDriver(machine(1, 1), drain_after=1, rerun_lost=True, available=False)
    driver.handle(HostReported(["n1", "n2"], []))
    driver.submit(job("a"))
    driver.schedule()
    assert notices(driver.lose("n1", "n2")) == []


# -- draining by hand -------------------------------------------------------------------------------------------------


def test_a_drained_node_finishes_its_jobs_and_gets_no_new_ones():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a"), job("b"), job("c"))
    driver.schedule()
    driver.drain("n1")
    driver.start("a", "b")
    driver.end("a")
    assert driver.schedule() == []
    driver.end("b")
    assert driver.schedule() == ["c on n2[0]"]
    assert driver.states()["a"] == "SUCCEED"


def test_a_drained_node_stays_drained_when_its_host_connects_again():
    driver = CoreDriver(machine(1))
    driver.drain("n1")
    driver.silent("n1")
    driver.report("n1")
    driver.submit(job("a"))
    assert driver.schedule() == []
    driver.resume("n1")
    assert driver.schedule() == ["a on n1[0]"]


def test_drained_nodes_are_known_to_the_next_manager():
    driver = CoreDriver(machine(1, 1))
    driver.drain("n1")
    driver.submit(job("a"))
    driver.core, _ = resume(save_state(driver.core.state), machine(1, 1), driver.now, rerun_lost=False)
    driver.report("n1")
    driver.report("n2")
    assert driver.schedule() == ["a on n2[0]"]


def test_a_wrong_name_is_refused_and_nothing_changes():
    driver = CoreDriver(machine(1, 1))
    with pytest.raises(CoreError, match=r"there is no node \"n3\""):
        driver.drain("n1", "n3")
    assert driver.core.state.health.drained == {}


def test_a_run_without_any_usable_node_ends_after_the_time_for_unreachable_nodes():
    driver = CoreDriver(machine(1))
    driver.core.state.patience = 10.0
    lines = driver.drain("n1")
    assert "no node is left that can start jobs" in notices(lines)[0]
    description = job("a")
    driver.submit(description)
    state = driver.core.state
    assert why_over(state, driver.now + 80) is None
    assert why_over(state, driver.now + 100) == (
        "the remaining nodes cannot satisfy any request: 1 core requested, but none exists; n1 is drained (on request)"
    )
    reason = WaitExplainer(state, driver.now).why_waiting(state.jobs["a"], -1, description)
    assert reason.sentence == "it waits for a node: n1 is drained (on request), and no other one is available"
