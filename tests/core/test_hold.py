"""Held jobs wait until they are released, in this run or in the next one."""

from __future__ import annotations

from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.why import WaitExplainer
from qcg.pilotjob.description.model import JobDescription, RetryPolicy, Sharing
from tests.core.core_driver import CoreDriver, job, machine
from tests.core.restart import resume, save_state


def names(launches: list[str]) -> list[str]:
    return [text.split(" ")[0] for text in launches]


def submitted(*jobs: JobDescription, cores: int = 4) -> CoreDriver:
    driver = CoreDriver(machine(cores))
    driver.submit(*jobs)
    return driver


def resumed(driver: CoreDriver, cores: int = 4) -> CoreDriver:
    later = CoreDriver(machine(cores), available=False)
    later.core, _ = resume(save_state(driver.core.state), machine(cores), driver.now, rerun_lost=False)
    later.now = driver.now
    later.report("n1")
    return later


def test_a_held_job_does_not_start_and_its_dependents_wait():
    driver = submitted(job("a", hold=True), job("b", after="a"), job("c"))
    assert names(driver.schedule()) == ["c"]
    assert driver.release("a") == ["released a", "reply {'released': 1}"]
    assert names(driver.schedule()) == ["a"]
    driver.end("a")
    assert names(driver.schedule()) == ["b"]


def test_a_released_job_has_the_place_in_the_queue_of_its_submission():
    driver = submitted(job("a"), job("b"), job("c"), cores=1)
    driver.hold("a", "b")
    driver.release("b")
    assert names(driver.schedule()) == ["b"]
    driver.release("a")
    driver.end("b")
    assert names(driver.schedule()) == ["a"]


def test_running_iterations_continue_when_their_job_is_held():
    driver = submitted(job("a", its=4), cores=2)
    assert names(driver.schedule()) == ["a:0", "a:1"]
    assert driver.hold("a") == ["held a", "reply {'held': 1}"]
    driver.end("a:0", "a:1")
    assert driver.schedule() == []
    driver.release("a")
    assert names(driver.schedule()) == ["a:2", "a:3"]


def test_one_iteration_is_held_and_released():
    driver = submitted(job("a", its=3))
    driver.hold("a:1")
    assert names(driver.schedule()) == ["a:0", "a:2"]
    driver.release("a:1")
    assert names(driver.schedule()) == ["a:1"]


def test_one_iteration_of_a_held_job_is_released_as_a_trial():
    driver = submitted(job("sweep", its=3, hold=True))
    driver.release("sweep:1")
    assert names(driver.schedule()) == ["sweep:1"]
    driver.end("sweep:1")
    assert driver.schedule() == []
    driver.release("sweep")
    assert names(driver.schedule()) == ["sweep:0", "sweep:2"]


def test_many_held_iterations_between_others_of_another_size_are_passed_over():
    sharing = Sharing("maximum-iters", "cores")
    driver = submitted(job("sweep", (2, None), its=3000, sharing=sharing), cores=5)
    driver.hold(*[f"sweep:{index}" for index in range(0, 3000, 2)])
    assert driver.schedule() == ["sweep:1 on n1[0:1:2]"]
    driver.hold(*[f"sweep:{index}" for index in range(3, 2999, 2)])
    driver.end("sweep:1")
    assert driver.schedule() == ["sweep:2999 on n1[0:1:2]"]


def test_iterations_with_the_same_index_wait_for_each_other_and_for_the_release():
    driver = submitted(job("a", its=2), job("b", its=2, after="a:${it}", hold=True))
    driver.schedule()
    driver.end("a:1")
    driver.release("b:1", "b:0")
    assert names(driver.schedule()) == ["b:1"]
    driver.end("a:0")
    assert names(driver.schedule()) == ["b:0"]


def test_a_retried_iteration_of_a_held_job_waits_for_the_release():
    driver = submitted(job("a", its=2, retry=RetryPolicy({"exit": 1}, delay=10.0)))
    driver.schedule()
    driver.end("a:0", exit_code=1)
    driver.hold("a")
    driver.now += 100.0
    assert driver.schedule() == []
    driver.release("a")
    assert names(driver.schedule()) == ["a:0"]


def test_a_release_does_not_end_the_pause_before_a_retry():
    driver = submitted(job("a", retry=RetryPolicy({"exit": 1}, delay=50.0)))
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.hold("a")
    driver.release("a")
    assert driver.schedule() == []
    driver.now += 100.0
    assert names(driver.schedule()) == ["a"]


def test_only_waiting_jobs_can_be_held_and_only_held_jobs_released():
    driver = submitted(job("a"), job("b", hold=True), job("c", its=1))
    driver.schedule()
    driver.end("c:0")
    driver.hold("a", "b", "c", "d", "b:1")
    assert driver.reply == {
        "held": 0,
        "errors": {
            "a": "job 'a' is SCHEDULED; only a waiting job can be held",
            "b": "job 'b' is held already",
            "c": "job 'c' is already SUCCEED",
            "d": "there is no job 'd'",
            "b:1": "job 'b' has no iterations",
        },
    }
    driver.release("a")
    assert driver.reply == {"released": 0, "errors": {"a": "job 'a' is not held"}}


def test_a_cancelled_job_is_not_held_any_more():
    driver = submitted(job("a", hold=True), job("b", after="a"))
    assert driver.cancel("a")[:2] == ["a CANCELED", "released a"]
    assert driver.states() == {"a": "CANCELED", "b": "OMITTED"}


def test_holds_outlive_the_manager():
    driver = submitted(job("a", hold=True), job("b", its=3), job("c", its=2, hold=True))
    driver.hold("b:1")
    driver.release("c:1")
    driver = resumed(driver, 8)
    assert names(driver.schedule()) == ["b:0", "b:2", "c:1"]
    driver.release("a", "b:1", "c")
    assert names(driver.schedule()) == ["a", "b:1", "c:0"]


def test_a_run_with_only_held_jobs_left_is_over():
    driver = submitted(job("a"), job("b", hold=True), job("c", after="b"), job("d", its=2))
    driver.hold("d:1")
    driver.schedule()
    assert why_over(driver.core.state, driver.now) is None
    driver.end("a", "d:0")
    assert why_over(driver.core.state, driver.now) == "2 jobs are held"
    driver.release("d")
    assert why_over(driver.core.state, driver.now) is None


def test_why_names_the_command_that_releases():
    driver = submitted(job("a", hold=True), job("b", its=2))
    driver.hold("b:1")
    explainer = WaitExplainer(driver.core.state, driver.now)
    jobs = driver.core.state.jobs
    assert explainer.why_waiting(jobs["a"], -1, job("a")).sentence == (
        "it is held since 2.0; release it with: qcg-pm release a"
    )
    assert explainer.why_waiting(jobs["b"], 1, job("b")).sentence == (
        "it is held since 3.0; release it with: qcg-pm release b:1"
    )


def test_held_jobs_are_not_counted_as_ahead():
    driver = submitted(job("running"), cores=1)
    driver.schedule()
    driver.submit(job("a"), job("b"), job("c"))
    driver.hold("a")
    explainer = WaitExplainer(driver.core.state, driver.now)
    assert explainer.why_waiting(driver.core.state.jobs["c"], -1, job("c")).sentence.endswith("; 1 job ahead of it")
