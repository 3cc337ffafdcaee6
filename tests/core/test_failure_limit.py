"""`--stop-after`: at the failure limit nothing more is started, and waiting jobs stay for the next manager."""

from __future__ import annotations

import pytest
from hypothesis import settings

from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.effects import Launch, NothingLeftToDo, Retract
from qcg.pilotjob.core.events import AttemptEnded, Deadline, Event, Schedule, Withdraw
from qcg.pilotjob.core.failure_limit import FailureLimit
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import RetryPolicy
from qcg.pilotjob.host.records import Ended
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state
from tests.core.test_state_machine import CoreMachine
from tests.support.tiers import per_tier

REACHED = "there was 1 failure (--stop-after 1)"


def busy(stop_after: int, *names: str, cores: int = 2) -> CoreDriver:
    driver = CoreDriver(machine(cores), stop_after=stop_after)
    driver.submit(*[job(name) for name in names])
    driver.schedule()
    return driver


def test_at_the_failure_limit_running_attempts_continue_and_nothing_is_started() -> None:
    driver = busy(1, "a", "b", "c")
    driver.start("a", "b")
    assert driver.end("a", exit_code=3) == ["a FAILED: exit code 3", f"limit: {REACHED}"]
    assert driver.handle(Schedule()) == [], "b runs"
    assert driver.end("b") == ["b SUCCEED"]
    assert driver.handle(Schedule()) == [f"nothing left to do: {REACHED}"]
    assert driver.states() == {"a": "FAILED", "b": "SUCCEED", "c": "QUEUED"}


def test_fewer_failures_change_nothing() -> None:
    driver = busy(2, "a", "b", "c")
    driver.start("a", "b")
    assert driver.end("a", exit_code=3) == ["a FAILED: exit code 3"]
    assert driver.schedule() == ["c on n1[0]"]
    assert driver.end("b", exit_code=3)[-1] == "limit: there were 2 failures (--stop-after 2)"


def test_without_a_limit_all_jobs_may_fail() -> None:
    driver = busy(0, "a", "b")
    assert driver.end("a", "b", exit_code=1) == ["a FAILED: exit code 1", "b FAILED: exit code 1", "all done"]
    assert driver.handle(Schedule()) == []


def test_iterations_count_and_their_job_does_not_count_again() -> None:
    driver = CoreDriver(machine(4), stop_after=3)
    driver.submit(job("it", its=2), job("a"), job("b"))
    driver.schedule()
    lines = driver.end("it:0", "it:1", exit_code=1)
    assert lines[-1] == "it FAILED"
    assert driver.core.state.failure_limit.failures == 2
    assert driver.end("a", exit_code=1)[-1].startswith("limit: there were 3 failures")


def test_iterations_that_can_never_run_count_each() -> None:
    driver = CoreDriver(machine(2), stop_after=5)
    assert driver.submit(job("it", its=7, cores=3))[0] == "limit: there were 7 failures (--stop-after 5)"


def test_failures_of_a_withdrawn_submission_do_not_count() -> None:
    driver = CoreDriver(machine(2), stop_after=8)
    assert driver.submit(job("a", cores=3)) == ["a FAILED: 3 cores requested, but only 2 exist", "all done"]
    driver.submit(job("b", cores=3), job("it", its=7, cores=3), job("c", after="b"), job("d"))
    assert driver.core.state.failure_limit.is_reached
    withdrawn = driver.handle(Withdraw(["b", "it", "c", "d"]))
    assert withdrawn == ["removed b", "removed it", "removed c", "removed d", "all done", "limit cleared"]
    assert driver.core.state.failure_limit.failures == 1
    driver.submit(job("e"))
    assert driver.schedule() == ["e on n1[0]"]


def test_a_limit_reached_before_a_withdrawn_submission_stays_reached() -> None:
    driver = CoreDriver(machine(2), stop_after=1)
    driver.submit(job("a", cores=3))
    driver.submit(job("b", cores=3))
    assert driver.handle(Withdraw(["b"])) == ["removed b"]
    assert driver.handle(Schedule()) == [f"nothing left to do: {REACHED}"]


def test_canceled_and_omitted_jobs_are_no_failures() -> None:
    driver = CoreDriver(machine(1), stop_after=1)
    driver.submit(job("a"), job("b", after="a"))
    driver.cancel("a")
    assert driver.states() == {"a": "CANCELED", "b": "OMITTED"}
    assert not driver.core.state.failure_limit.is_reached


def test_an_attempt_that_is_retried_is_no_failure_and_a_job_that_may_be_retried_waits_then() -> None:
    driver = CoreDriver(machine(2), stop_after=1)
    retried = job("r", retry=RetryPolicy({"exit": 3}))
    driver.submit(retried, job("a"))
    driver.schedule()
    driver.start("r", "a")
    driver.end("r", exit_code=1)
    assert not driver.core.state.failure_limit.failures
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.end("r", exit_code=1)
    assert driver.handle(Schedule())[-1] == f"nothing left to do: {REACHED}"
    assert driver.states()["r"] == "QUEUED"


def test_prefilled_attempts_are_retracted() -> None:
    driver = CoreDriver(machine(1, 1), stop_after=1)
    driver.submit(job("it", its=20))
    driver.schedule()
    for name, seconds, exit_code in (("it:0", 0.001, 0), ("it:1", 0.001, 0)):
        attempt = driver.attempt(name)
        driver.handle(AttemptEnded(Ended(attempt.id, driver.now, exit_code, "exit", "", 7, driver.now - seconds)))
    driver.handle(Schedule())
    ahead = {effect.attempt for effect in driver.effects if isinstance(effect, Launch) and effect.attempt.lane}
    first = next(effect.attempt for effect in driver.effects if isinstance(effect, Launch))
    assert len(ahead) > 2
    driver.handle(AttemptEnded(Ended(first.id, driver.now, 1, "exit", "", 7, driver.now - 0.001)))
    driver.handle(Schedule())
    retracted = {attempt for effect in driver.effects if isinstance(effect, Retract) for attempt in effect.attempts}
    kept = {attempt for lane in {attempt.lane for attempt in ahead} if lane for attempt in [lane.first]}
    assert retracted == ahead - kept - {first}
    for attempt in sorted(retracted, key=lambda attempt: attempt.position):
        driver.handle(AttemptEnded(Ended(attempt.id, driver.now, -1, "closed", "", 0, 0.0)))
    for attempt in list(driver.core.state.attempts.values()):
        driver.handle(AttemptEnded(Ended(attempt.id, driver.now, 0, "exit", "", 7, driver.now - 0.001)))
    assert driver.handle(Schedule()) == [f"nothing left to do: {REACHED}"]
    assert driver.iteration_states("it").count("QUEUED") == len(retracted) + 20 - 2 - len(ahead | {first})


def test_the_next_manager_starts_what_waits_and_counts_anew() -> None:
    driver = busy(1, "a", "b", "c", cores=1)
    driver.end("a", exit_code=1)
    driver.core, _ = resume(save_state(driver.core.state), machine(1), driver.now, rerun_lost=False, stop_after=1)
    driver.report("n1")
    assert driver.schedule() == ["b on n1[0]"]
    assert driver.end("b", exit_code=1)[-1] == f"limit: {REACHED}"


def test_waiting_jobs_say_why_they_are_not_started() -> None:
    driver = busy(1, "a", "b", cores=1)
    driver.end("a", exit_code=1)
    waiting = driver.core.state.jobs["b"]
    reason = WaitExplainer(driver.core.state, driver.now).why_waiting(waiting, -1, job("b"))
    assert reason.sentence == f"it waits for the next manager of this run: {REACHED}, so nothing is started"
    assert why_over(driver.core.state, driver.now) is None, "the scheduler ends the manager, with its own reason"


@pytest.mark.parametrize(("limit", "steps", "reached"), [(0, [5], []), (2, [1, 1, 1], [2]), (2, [7, 1], [7])])
def test_the_limit_is_reached_once(limit: int, steps: list[int], reached: list[int]) -> None:
    counted = FailureLimit(limit)
    assert [counted.failures for step in steps if counted.add(step)] == reached


class LimitMachine(CoreMachine):
    """Random events under a core that takes two failures."""

    stop_after = 2

    def handle(self, event: Event) -> None:
        reached = self.core.state.failure_limit.is_reached
        super().handle(event)
        assert not (reached and any(isinstance(effect, Launch) for effect in self.effects))

    def finish_everything(self) -> None:
        if not hasattr(self, "core"):
            return
        self.handle(Deadline(None))
        for host in self.hosts.values():
            self.tell_all(host.reconnect(everything=False))  # running attempts may fail when they are reported
        self.run_all()
        limit = self.core.state.failure_limit
        if limit.is_reached:
            self.handle(Schedule())
            assert any(isinstance(effect, NothingLeftToDo) for effect in self.effects)
        limit.limit = 0  # as the next manager does
        super().finish_everything()


TestLimitMachine = pytest.mark.sampled(LimitMachine.TestCase)
TestLimitMachine.settings = settings(max_examples=per_tier(15, 200), stateful_step_count=25)
