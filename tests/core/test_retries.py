"""Jobs that do not succeed are started again, by cause, after a pause, with more resources."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qcg.pilotjob.core.attempt_end import MEMORY_ADVICE
from qcg.pilotjob.core.can_progress import NO_TIME, why_over
from qcg.pilotjob.core.effects import Requeued, WakeAt
from qcg.pilotjob.core.events import AttemptEnded, ShutDown
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import RetryGrowth, RetryPolicy
from qcg.pilotjob.description.retry import CAUSES, JITTER
from qcg.pilotjob.host.records import Ended, EndReason
from qcg.pilotjob.journal.records import CAUSES_WITHOUT_FAILURE
from tests.core.core_driver import CoreDriver, job, machine, node
from tests.core.restart import resume, save_state

THREE = RetryPolicy({"exit": 3, "timeout": 3})


def started(*jobs: Any, nodes: Any = None, **options: Any) -> CoreDriver:
    driver = CoreDriver(nodes or machine(4), **options)
    driver.submit(*jobs)
    driver.schedule()
    return driver


def again(driver: CoreDriver) -> list[str]:
    """Start everything that is ready; returns the launches."""
    return driver.schedule()


def wait_until_ready(driver: CoreDriver, *units: tuple[int, int]) -> None:
    driver.now = max(driver.core.state.paused[unit][0] for unit in units)


def test_jobs_can_be_retried_after_each_reason_for_which_an_attempt_fails():
    reasons = {value for name, value in vars(EndReason).items() if name.isupper()}
    # A signal that ended the process is the reason `exit` with a negative exit code.
    assert set(CAUSES) == reasons.difference(CAUSES_WITHOUT_FAILURE) | {"signal"}


def test_a_failed_job_waits_again_and_its_dependents_wait_with_it():
    driver = started(job("a", retry=RetryPolicy({"exit": 1})), job("b", after="a"))
    driver.start("a")
    assert driver.end("a", exit_code=1) == ["requeued a", "a QUEUED"]
    assert driver.states() == {"a": "QUEUED", "b": "QUEUED"}
    assert again(driver) == ["a (attempt 2) on n1[0]"]
    driver.start("a")
    assert driver.end("a", exit_code=1) == [
        "a FAILED: exit code 1 (attempt 2)",
        "b OMITTED: it waits for 'a', which is FAILED",
        "all done",
    ]


def test_a_retry_that_succeeds_makes_dependents_ready():
    driver = started(job("a", retry=THREE), job("b", after="a"))
    driver.end("a", exit_code=1)
    again(driver)
    assert driver.end("a") == ["a SUCCEED"]
    assert again(driver) == ["b on n1[0]"]


def test_each_cause_has_its_own_budget():
    driver = started(job("a", retry=RetryPolicy({"exit": 1, "lost": 2})))
    for cause in ("lost", "exit", "lost"):
        lines = driver.end("a", exit_code=1, reason=cause)
        assert lines == [f"requeued {name_with_attempt(driver)}", "a QUEUED"], cause
        again(driver)
    driver.end("a", exit_code=1, reason="lost")
    assert driver.states() == {"a": "FAILED"}


def name_with_attempt(driver: CoreDriver) -> str:
    (requeued,) = [effect for effect in driver.effects if isinstance(effect, Requeued)]
    return "a" if requeued.attempt.number == 1 else f"a (attempt {requeued.attempt.number})"


@pytest.mark.parametrize(
    ("exit_code", "reason", "policy", "retried"),
    [
        (1, "exit", RetryPolicy({"exit": 1}), True),
        (1, "exit", RetryPolicy({"signal": 1}), False),
        (-9, "exit", RetryPolicy({"signal": 1}), True),
        (-9, "exit", RetryPolicy({"exit": 1}), False),
        (-15, "timeout", RetryPolicy({"timeout": 1}), True),
        (-1, "unstartable", RetryPolicy({"unstartable": 1}), True),
        (1, "staging", RetryPolicy({"staging": 1}), True),
        (-9, "memory", RetryPolicy({"memory": 1}), True),
        (3, "exit", RetryPolicy({"exit": 1}, ((1, 2), (5, 9))), False),
        (7, "exit", RetryPolicy({"exit": 1}, ((1, 2), (5, 9))), True),
        (-15, "timeout", RetryPolicy({"exit": 1, "timeout": 1}, ((1, 2),)), True),
        (0, "exit", RetryPolicy({"exit": 1}), False),
    ],
)
def test_causes_and_exit_codes_decide(exit_code: int, reason: str, policy: RetryPolicy, retried: bool):
    driver = started(job("a", retry=policy))
    driver.end("a", exit_code=exit_code, reason=reason, message="it ended")
    assert (driver.states()["a"] == "QUEUED") == retried


@pytest.mark.parametrize(
    ("memory", "policy", "end"),
    [
        (100, None, f"too much. {MEMORY_ADVICE}"),
        (100, RetryPolicy({"exit": 1}), f"too much. {MEMORY_ADVICE}"),
        (100, RetryPolicy({"memory": 1}), "too much. (attempt 2)"),
        (0, None, "too much."),
    ],
)
def test_a_retry_for_memory_is_advised_to_jobs_without_one(memory: int, policy: RetryPolicy | None, end: str):
    driver = started(job("a", memory=memory, retry=policy), nodes=[node("n1", 4, memory=1000)])
    lines = driver.end("a", exit_code=-9, reason="memory", message="too much.")
    if policy is not None and "memory" in policy.budgets:
        again(driver)
        lines = driver.end("a", exit_code=-9, reason="memory", message="too much.")
    assert lines[0] == f"a FAILED: {end}"


def test_a_cancelled_job_is_not_retried_even_if_it_fails_before_it_is_killed():
    driver = started(job("a", retry=THREE))
    driver.cancel("a")
    assert driver.end("a", exit_code=1)[0] == "a FAILED: exit code 1"


def test_the_policy_of_the_run_is_for_jobs_without_their_own():
    driver = CoreDriver(machine(4))
    driver.core.state.retry = RetryPolicy({"exit": 1})
    driver.submit(job("a"), job("b", retry=RetryPolicy({"lost": 1})))
    driver.schedule()
    driver.end("a", "b", exit_code=1)
    assert driver.states() == {"a": "QUEUED", "b": "FAILED"}


def test_on_lost_rerun_comes_after_the_retries_of_the_job():
    driver = started(job("a", retry=RetryPolicy({"lost": 1})), rerun_lost=True)
    for _ in range(10):
        assert driver.end("a", reason="lost", exit_code=-1)[-1] == "a QUEUED"
        again(driver)
    driver.end("a", reason="lost", exit_code=-1)
    assert driver.states() == {"a": "FAILED"}


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_a_pause_frees_the_cores_and_grows_with_each_attempt():
    policy = RetryPolicy({"exit": 9}, delay=10.0, factor=3.0, max_delay=50.0)
    driver = started(job("a", 4, retry=policy), job("b", 4))
    pauses = []
    for _ in range(4):
        driver.end("a", exit_code=1)
        ended = driver.now
        (wake,) = [effect for effect in driver.effects if isinstance(effect, WakeAt)]
        pauses.append(wake.at - ended)
        if len(pauses) == 1:
            assert again(driver) == ["b on n1[0:1:2:3]"]
            driver.end("b")
        assert again(driver) == []
        driver.now = wake.at - 1.0
        assert len(again(driver)) == 1, "at the time itself it is ready"
    for pause, least in zip(pauses, [10.0, 30.0, 50.0, 50.0], strict=True):
        assert least <= pause <= least * (1 + JITTER)
    assert len(set(pauses)) == 4, "the jitter differs"


def test_jobs_that_failed_together_do_not_return_together():
    driver = started(job("a", its=4, retry=RetryPolicy({"exit": 1}, delay=100.0)))
    driver.end("a:0", "a:1", "a:2", "a:3", exit_code=1)
    ends = [at for at, _ in driver.core.state.paused.values()]
    assert max(ends) - min(ends) > 1.0


def test_other_iterations_start_while_one_pauses():
    driver = started(job("a", its=3, retry=RetryPolicy({"exit": 2}, delay=1000.0)), nodes=machine(1))
    driver.end("a:0", exit_code=1)
    assert again(driver) == ["a:1 on n1[0]"]
    driver.end("a:1")
    assert again(driver) == ["a:2 on n1[0]"]
    driver.end("a:2")
    assert again(driver) == []
    assert why_over(driver.core.state, driver.now) is None
    wait_until_ready(driver, (1, 0))
    assert again(driver) == ["a:0 (attempt 2) on n1[0]"]


def test_a_paused_job_can_be_cancelled():
    driver = started(job("a", retry=RetryPolicy({"exit": 2}, delay=1000.0)))
    driver.end("a", exit_code=1)
    assert driver.cancel("a") == ["a CANCELED", "all done", "reply {'canceled': 1}"]
    driver.now += 5000.0
    assert again(driver) == []


def test_why_names_the_end_of_the_pause_and_the_attempt():
    policy = RetryPolicy({"exit": 2}, delay=1000.0)
    description = job("a", retry=policy)
    driver = started(description)
    driver.end("a", exit_code=1)
    explainer = WaitExplainer(driver.core.state, driver.now, show_time=lambda at: "noon")
    reason = explainer.why_waiting(driver.core.state.jobs["a"], -1, description)
    assert reason.kind == "retry"
    assert reason.sentence == "it pauses until noon, then it is ready for attempt 2"


def test_a_pause_beyond_the_end_of_the_time_is_no_reason_to_wait():
    driver = started(job("a", retry=RetryPolicy({"exit": 2}, delay=1000.0)))
    driver.end("a", exit_code=1)
    driver.deadline(driver.now + 100.0)
    assert why_over(driver.core.state, driver.now) == NO_TIME


# -- growth -----------------------------------------------------------------------------------------------------------


def demand(driver: CoreDriver, name: str = "a", position: int = -1) -> tuple[float, int, int]:
    entry = entry_of(driver.core.state.jobs[name], position)
    assert entry.line.request.cores is not None
    return entry.wall_time, entry.line.request.memory, entry.line.request.cores.least


def test_wall_time_memory_and_cores_grow_by_factors():
    growth = RetryGrowth(wall_time=2.0, memory=1.5, cores=2.0)
    policy = RetryPolicy({"exit": 3}, grow=growth)
    driver = started(job("a", 1, wt=10.0, memory=100, retry=policy), nodes=[node("n1", 8, memory=1000)])
    driver.end("a", exit_code=1)
    assert again(driver) == ["a (attempt 2) on n1[0:1]"]
    assert demand(driver) == (20.0, 150, 2)
    driver.end("a", exit_code=1)
    assert again(driver) == ["a (attempt 3) on n1[0:1:2:3]"]
    assert demand(driver) == (40.0, 225, 4)


def test_listed_values_are_used_one_after_another_and_the_last_one_stays():
    policy = RetryPolicy({"timeout": 4}, grow=RetryGrowth(wall_time=(60.0, 300.0)))
    driver = started(job("a", wt=10.0, its=2, retry=policy))
    seen = []
    for _ in range(3):
        driver.end("a:1", exit_code=-15, reason="timeout")
        again(driver)
        seen.append(demand(driver, position=1)[0])
    assert seen == [60.0, 300.0, 300.0]
    assert demand(driver, position=0)[0] == 10.0


def test_nothing_grows_after_a_lost_attempt():
    policy = RetryPolicy({"lost": 2, "exit": 1}, grow=RetryGrowth(wall_time=2.0))
    driver = started(job("a", wt=10.0, retry=policy))
    driver.end("a", exit_code=-1, reason="lost")
    again(driver)
    assert demand(driver)[0] == 10.0


def test_growth_stops_at_what_the_nodes_have():
    policy = RetryPolicy({"exit": 5}, grow=RetryGrowth(memory=2.0))
    driver = started(job("a", memory=300, retry=policy), nodes=[node("n1", 4, memory=1000)])
    seen = []
    for _ in range(3):
        driver.end("a", exit_code=1)
        assert len(again(driver)) == 1
        seen.append(demand(driver)[1])
    assert seen == [600, 1000, 1000]


@pytest.mark.parametrize(
    ("cores", "memory", "growth", "nodes", "demands"),
    [
        (3, 100, RetryGrowth(memory=2.0, cores=2.0), [node("n1", 4, memory=1000)], [(200, 4), (400, 4), (800, 4)]),
        (3, 0, RetryGrowth(cores=1.5), [node("n1", 4)], [(0, 4), (0, 4)]),
        (3, 0, RetryGrowth(cores=3.0), [node("n1", 4), node("n2", 4)], [(0, 8), (0, 8)]),
        (1, 100, RetryGrowth(memory=(200.0, 9000.0), cores=2.0), [node("n1", 4, memory=500)], [(200, 2), (500, 4)]),
        # No node has both, so the growth of the first step stays.
        (
            2,
            100,
            RetryGrowth(memory=2.0, cores=2.0),
            [node("small", 4, memory=1000), node("large", 8, memory=100)],
            [(200, 4), (200, 4)],
        ),
    ],
)
def test_memory_and_cores_grow_each_up_to_what_the_nodes_have(
    cores: int, memory: int, growth: RetryGrowth, nodes: Any, demands: list[tuple[int, int]]
):
    policy = RetryPolicy({"exit": 5}, grow=growth)
    driver = started(job("a", cores, memory=memory, retry=policy), nodes=nodes)
    for expected in demands:
        driver.end("a", exit_code=1)
        assert len(again(driver)) == 1
        assert demand(driver)[1:] == expected


def test_iterations_that_have_grown_alike_start_in_their_order():
    policy = RetryPolicy({"exit": 3}, grow=RetryGrowth(wall_time=2.0))
    driver = started(job("a", its=5, wt=5.0, retry=policy), nodes=machine(5))
    for index in (4, 1, 3, 0, 2):
        driver.end(f"a:{index}", exit_code=1)
    assert [text.split(" ")[0] for text in again(driver)] == ["a:0", "a:1", "a:2", "a:3", "a:4"]
    assert {demand(driver, "a", position)[0] for position in range(5)} == {10.0}


# -- later managers ---------------------------------------------------------------------------------------------------


def test_budgets_pauses_and_growth_outlive_the_manager():
    policy = RetryPolicy({"exit": 2}, delay=100.0, grow=RetryGrowth(wall_time=3.0))
    driver = started(job("a", wt=10.0, retry=policy), job("b", its=3, wt=10.0, retry=policy), nodes=machine(8))
    driver.end("a", "b:1", exit_code=1)
    core, effects = resume(save_state(driver.core.state), machine(8), driver.now, rerun_lost=False)
    later = CoreDriver(machine(8), available=False)
    later.core, later.now = core, driver.now
    later.report("n1")
    assert any(isinstance(effect, WakeAt) for effect in effects)
    assert sorted(text.split(" on ")[0] for text in later.schedule()) == ["b:0 (attempt 2)", "b:2 (attempt 2)"]
    assert demand(later)[0] == demand(later, "b", 1)[0] == 30.0
    wait_until_ready(later, (1, -1), (2, 1))
    assert sorted(text.split(" on ")[0] for text in later.schedule()) == ["a (attempt 2)", "b:1 (attempt 2)"]
    later.end("a", exit_code=1)
    assert later.states()["a"] == "QUEUED"
    wait_until_ready(later, (1, -1))
    later.schedule()
    later.end("a", exit_code=1)
    assert later.states()["a"] == "FAILED"


def test_a_manager_that_ends_uses_up_no_retries():
    driver = started(job("a", retry=RetryPolicy({"exit": 1})))
    driver.start("a")
    driver.handle(ShutDown(Disposition.REQUEUE, "over"))
    driver.end("a", exit_code=1)
    past = driver.core.state.past_of(driver.core.state.jobs["a"], -1)
    assert past is not None
    assert (past.attempts, past.retries) == (1, {})


def test_the_attempts_of_a_job_are_numbered_from_one_without_those_that_never_started():
    driver = started(job("a", retry=RetryPolicy({"exit": 3})))
    driver.report("n1")  # its host does not have it: it never arrived
    again(driver)
    attempt = driver.attempt("a")
    assert (attempt.number, attempt.ordinal) == (2, 1)
    driver.end("a", exit_code=1)
    again(driver)
    assert (driver.attempt("a").number, driver.attempt("a").ordinal) == (3, 2)


def test_a_repeated_record_of_a_retried_attempt_changes_nothing():
    driver = started(job("a", retry=RetryPolicy({"exit": 3})))
    old = driver.attempt("a")
    driver.end("a", exit_code=1)
    repeated = AttemptEnded(Ended(old.id, driver.now, 1, "exit", "", 0, 0.0, [("n1", (0,), ())]))
    assert driver.handle(repeated) == []
    again(driver)
    assert driver.handle(repeated) == []
    assert driver.states() == {"a": "SCHEDULED"}


def test_factors_of_many_attempts_do_not_overflow():
    policy = RetryPolicy({"exit": 5000}, delay=1.0, factor=1000.0, grow=RetryGrowth(wall_time=1000.0))
    driver = started(job("a", wt=10.0, retry=policy))
    for _ in range(200):
        driver.end("a", exit_code=1)
        driver.now += 10000.0
        assert len(again(driver)) == 1
    assert math.isfinite(demand(driver)[0])
