"""Effects of a shutdown on jobs, by cause and disposition."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.events import AttemptEnded, ShutDown
from qcg.pilotjob.core.shutdown import KILL_GRACE, Cause, Disposition, Shutdown, decide
from qcg.pilotjob.host.records import Ended
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state

REQUEUE, CANCEL_RUNNING = Disposition.REQUEUE, Disposition.CANCEL_RUNNING

TABLE = {
    Cause.DONE: REQUEUE,
    Cause.SIGNAL: REQUEUE,
    Cause.TIME: REQUEUE,
    Cause.FAILURES: REQUEUE,
    Cause.OWNER_GONE: REQUEUE,
    Cause.FINISH: CANCEL_RUNNING,
    Cause.REQUESTS_READ: CANCEL_RUNNING,
    Cause.FINISH_AND_CANCEL: Disposition.CANCEL_ALL,
    Cause.NO_HOST: Disposition.LEAVE,
    Cause.DEFECT: Disposition.LEAVE,
}


@pytest.mark.parametrize("cause", list(Cause), ids=lambda cause: cause.name)
def test_the_cause_decides_what_happens_to_jobs(cause: Cause) -> None:
    assert decide(cause) == Shutdown(cause, TABLE[cause], KILL_GRACE)
    assert decide(cause, grace=1.5) == Shutdown(cause, TABLE[cause], 1.5)
    assert decide(cause, urgent=True) == Shutdown(cause, TABLE[cause], 0.0), "urgency changes the grace period alone"


def busy() -> CoreDriver:
    """`a` and `it:0` run on two cores, `b` and the other iterations wait, `c` depends on `a`, `d` on `b`."""
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("it", its=3), job("b"), job("c", after="a"), job("d", after="b"))
    driver.schedule()
    driver.start("a", "it:0")
    return driver


def next_manager(driver: CoreDriver, cores: int) -> CoreDriver:
    """A manager of the same run, whose agent has not reported yet."""
    other = CoreDriver([], available=False)
    other.now = driver.now
    other.core, _ = resume(
        save_state(driver.core.state), machine(cores), driver.now, rerun_lost=False, fallback_node="n1"
    )
    return other


def test_requeue_ends_running_attempts_and_leaves_every_job_queued() -> None:
    driver = busy()
    assert driver.suspend() == ["stop a: closed", "stop it:0: closed"]
    assert driver.schedule() == []
    driver.end("a", "it:0", exit_code=-15, reason="closed")
    assert driver.states() == {"a": "QUEUED", "it": "EXECUTING", "b": "QUEUED", "c": "QUEUED", "d": "QUEUED"}
    assert driver.iteration_states("it") == ["QUEUED"] * 3
    assert driver.schedule() == [], "the manager that ends starts nothing"
    resumed = next_manager(driver, 8)
    resumed.report("n1")
    assert resumed.schedule() == [
        "a (attempt 2) on n1[0]",
        "it:0 (attempt 2) on n1[1]",
        "it:1 on n1[2]",
        "it:2 on n1[3]",
        "b on n1[4]",
    ]


def test_finish_cancels_running_jobs_and_keeps_waiting_ones() -> None:
    driver = busy()
    assert driver.finish() == ["kill a", "kill it:0"]
    assert driver.schedule() == []
    assert driver.end("a", "it:0", exit_code=-15, reason="closed") == [
        "a CANCELED",
        "c OMITTED: it waits for 'a', which is CANCELED",
        "it:0 CANCELED",
    ]
    assert driver.states() == {"a": "CANCELED", "it": "EXECUTING", "b": "QUEUED", "c": "OMITTED", "d": "QUEUED"}
    assert driver.iteration_states("it") == ["CANCELED", "QUEUED", "QUEUED"]
    resumed = next_manager(driver, 8)
    resumed.report("n1")
    assert resumed.schedule() == ["it:1 on n1[0]", "it:2 on n1[1]", "b on n1[2]"]
    resumed.end("it:1", "it:2", "b")
    assert resumed.schedule() == ["d on n1[0]"]
    resumed.end("d")
    assert resumed.states()["it"] == "CANCELED", "one of its iterations was"


def test_a_job_that_ends_by_itself_during_the_shutdown_keeps_its_result() -> None:
    for end_manager in (CoreDriver.suspend, CoreDriver.finish):
        driver = busy()
        end_manager(driver)
        assert driver.end("a") == ["a SUCCEED"]
        assert driver.states()["c"] == "QUEUED"


def test_finish_treats_an_attempt_that_has_not_started_as_a_waiting_job() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    driver.schedule()
    assert driver.finish() == ["stop a: closed"]
    assert driver.end("a", reason="closed", exit_code=-1)[-1] == "a QUEUED"


def test_finish_cancels_a_job_whose_start_is_reported_late() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"))
    driver.schedule()
    assert driver.finish() == ["stop a: closed", "stop b: closed"]
    assert driver.start("a") == ["a EXECUTING"]
    assert driver.end("a", exit_code=-15, reason="closed") == ["a CANCELED"]
    ended = Ended(driver.attempt("b").id, driver.now, -15, "closed", "", 1001, driver.now)
    assert "b CANCELED" in driver.handle(AttemptEnded(ended)), "start and end in one report"


def test_a_crash_in_the_middle_of_a_shutdown_loses_no_cancel() -> None:
    """The next manager cancels the same attempts. The host may have got the order to end the others, or not."""
    for end_manager, effects, final in (
        (CoreDriver.suspend, [], "a QUEUED"),
        (CoreDriver.finish, ["kill a", "kill it:0"], "a CANCELED"),
    ):
        driver = busy()
        end_manager(driver)
        resumed = next_manager(driver, 2)
        live = [driver.running("a"), driver.running("it:0")]
        assert resumed.report("n1", live=live) == effects
        assert final in resumed.end("a", exit_code=-15, reason="closed")


def test_an_attempt_that_no_order_to_end_has_reached_continues_with_the_next_manager() -> None:
    driver = busy()
    driver.suspend()
    resumed = next_manager(driver, 2)
    assert resumed.report("n1", live=[driver.running("a"), driver.running("it:0")]) == []
    assert resumed.end("a") == ["a SUCCEED"]
    assert resumed.end("it:0", exit_code=3) == ["it:0 FAILED: exit code 3"], "no manager has signalled it"


def test_an_attempt_that_continues_is_stopped_when_the_next_manager_ends() -> None:
    driver = busy()
    driver.suspend()
    resumed = next_manager(driver, 2)
    live = [driver.running("a"), driver.running("it:0")]
    resumed.report("n1", live=live)
    assert resumed.suspend() == ["stop a: closed", "stop it:0: closed"]
    assert resumed.report("n1", live=live) == ["stop a: closed", "stop it:0: closed"]


def test_an_attempt_on_a_core_that_has_left_the_run_does_not_continue() -> None:
    driver = busy()
    driver.suspend()
    resumed = next_manager(driver, 1)
    assert resumed.report("n1", live=[driver.running("a"), driver.running("it:0")]) == ["stop it:0: closed"]
    assert "it:0 QUEUED" in resumed.end("it:0", exit_code=-15, reason="closed")


def test_a_lost_agent_changes_nothing_about_the_decision() -> None:
    for end_manager, state in ((CoreDriver.suspend, "QUEUED"), (CoreDriver.finish, "CANCELED")):
        driver = busy()
        end_manager(driver)
        driver.lose("n1")
        assert driver.states()["a"] == state
        assert driver.states()["b"] == "QUEUED"


def test_finish_with_cancel_leaves_nothing_to_resume() -> None:
    driver = busy()
    driver.cancel_all("told to finish and to cancel")
    driver.end("a", "it:0", exit_code=-15, reason="cancel")
    assert set(driver.states().values()) == {"CANCELED"}
    assert driver.core.state.unfinished == 0


def test_the_disposition_leave_changes_nothing() -> None:
    driver = busy()
    assert driver.handle(ShutDown(Disposition.LEAVE, "")) == []
    assert driver.schedule() == []
    assert driver.end("a", exit_code=1)[0] == "a FAILED: exit code 1"
