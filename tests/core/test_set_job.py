"""Waiting jobs get another priority, other resources or another wall time."""

from __future__ import annotations

import pytest

from qcg.pilotjob.core.effects import Launch
from qcg.pilotjob.description.changes import JobChange, change_of, changed_description
from qcg.pilotjob.description.model import Amount, JobDescription, RetryGrowth, RetryPolicy
from qcg.pilotjob.description.requests import SetJob
from tests.core.core_driver import CoreDriver, extra, job, machine, node
from tests.core.restart import resume, save_state

FOUR = JobChange(cores=Amount(4, 4))


def names(launches: list[str]) -> list[str]:
    return [text.split(" ")[0] for text in launches]


def submitted(*jobs: JobDescription, cores: int = 4) -> CoreDriver:
    driver = CoreDriver(machine(cores))
    driver.submit(*jobs)
    return driver


def test_a_new_priority_decides_about_the_next_start():
    driver = submitted(job("a"), job("b"), job("c"), cores=1)
    assert driver.set("c", change=JobChange(priority=5)) == ["redescribed c", "reply {'changed': 1}"]
    assert names(driver.schedule()) == ["c"]
    driver.set("b", change=JobChange(priority=1))
    driver.end("c")
    driver.set("b", change=JobChange(priority=-1))
    assert names(driver.schedule()) == ["a"]


def test_a_job_gets_the_cores_that_it_asks_for_now():
    driver = submitted(job("running"), job("a", 4))
    driver.schedule()
    driver.set("a", change=JobChange(cores=Amount(2, 2)))
    assert driver.schedule() == ["a on n1[1:2]"]


def test_waiting_iterations_get_the_new_priority_while_others_run():
    driver = submitted(job("a", its=3), job("b"), cores=1)
    driver.schedule()
    driver.set("a", change=JobChange(priority=-1))
    driver.end("a:0")
    assert names(driver.schedule()) == ["b"]
    driver.end("b")
    assert names(driver.schedule()) == ["a:1"]


def test_resources_of_a_job_with_running_iterations_are_not_changed():
    driver = submitted(job("a", its=3), cores=1)
    driver.schedule()
    driver.set("a", change=JobChange(wall_time=5.0))
    (error,) = driver.reply["errors"].values()  # type: ignore[attr-defined]
    assert error.startswith("job 'a' has running iterations, so only its priority can be changed now; hold it")
    driver.hold("a")
    driver.end("a:0")
    driver.set("a", change=JobChange(wall_time=5.0))
    driver.release("a")
    assert driver.reply == {"released": 1}
    assert names(driver.schedule()) == ["a:1"]
    assert driver.core.state.jobs["a"].entries[0].wall_time == 5.0


def test_requests_for_more_than_the_nodes_have_are_refused_and_nothing_changes():
    driver = submitted(job("a"), cores=2)
    driver.set("a", change=FOUR)
    assert driver.reply == {
        "changed": 0,
        "errors": {"a": "job 'a' cannot be changed: 4 cores requested, but only 2 exist"},
    }
    assert driver.schedule() == ["a on n1[0]"]


def test_only_waiting_jobs_can_be_changed():
    driver = submitted(job("a"), job("b", its=1))
    driver.schedule()
    driver.end("b:0")
    driver.set("a", "b", "c", "b:0", change=FOUR)
    assert driver.reply == {
        "changed": 0,
        "errors": {
            "a": "job 'a' is SCHEDULED; only a waiting job can be changed",
            "b": "job 'b' is already SUCCEED",
            "c": "there is no job 'c'",
            "b:0": "an iteration cannot be changed on its own; change 'b'",
        },
    }


def test_held_and_dependent_jobs_stay_so_with_their_new_demand():
    driver = submitted(job("a", hold=True), job("b", after="a"), job("c", its=2, after="a"))
    driver.set("a", "b", "c", change=JobChange(cores=Amount(2, 2), wall_time=9.0))
    assert driver.schedule() == []
    driver.release("a")
    assert driver.schedule() == ["a on n1[0:1]"]
    driver.end("a")
    assert driver.schedule() == ["b on n1[0:1]", "c:0 on n1[2:3]"]


def test_a_paused_job_keeps_its_pause_and_what_has_grown_grows_from_the_new_value():
    policy = RetryPolicy({"exit": 3}, delay=50.0, grow=RetryGrowth(wall_time=2.0))
    driver = submitted(job("a", wt=10.0, retry=policy))
    driver.schedule()
    driver.end("a", exit_code=1)
    driver.set("a", change=JobChange(wall_time=100.0))
    assert driver.schedule() == []
    driver.now += 100.0
    assert names(driver.schedule()) == ["a"]
    assert driver.core.state.jobs["a"].entries[0].wall_time == 200.0


def test_changes_outlive_the_manager():
    driver = submitted(job("a"), job("b"), job("c", its=2))
    driver.set("c", change=JobChange(cores=Amount(2, 2), priority=3))
    later = CoreDriver(machine(4), available=False)
    later.core, _ = resume(save_state(driver.core.state), machine(4), driver.now, rerun_lost=False)
    later.now = driver.now
    later.report("n1")
    assert later.schedule() == ["c:0 on n1[0:1]", "c:1 on n1[2:3]"]


def test_memory_and_gpus_put_a_job_on_one_node():
    driver = CoreDriver([node("n1", 1), node("n2", 2, gpus=1, memory=100)])
    driver.submit(job("a", 2))
    driver.set("a", change=JobChange(gpus=1, memory=50))
    driver.schedule()
    (attempt,) = [effect.attempt for effect in driver.effects if isinstance(effect, Launch)]
    (part,) = attempt.grant.parts
    assert (part.node, part.cores, part.gpus, part.memory) == ("n2", (0, 1), ("0",), 50)


def test_a_part_of_a_gpu_replaces_whole_ones_and_is_replaced_by_them():
    driver = CoreDriver([node("n1", 3, gpus=2)], counters={"license": 1})
    driver.submit(
        job("half", gpus=2, extra=extra(license=1)), job("other", extra=extra(500)), job("whole", extra=extra(200))
    )
    driver.set("half", change=JobChange(gpus=0, gpu_share=500))
    driver.set("whole", change=JobChange(gpus=1))
    assert len(driver.schedule()) == 3
    grants = {name: driver.attempt(name).grant for name in ("half", "other", "whole")}
    (half,), (other,), (whole,) = [grant.parts[0].gpus for grant in grants.values()]
    assert half == other != whole
    assert grants["half"].extra == extra(500, license=1)
    assert driver.core.state.pool.counters.free == {"license": 0}


@pytest.mark.parametrize("change", [JobChange(gpus=2), JobChange(gpus=0, gpu_share=250), JobChange(memory=5)])
def test_other_resources_stay_when_gpus_are_changed(change: JobChange):
    before = job("a", extra=extra(500, fpga=2))
    after = changed_description(before, change)
    assert isinstance(after, JobDescription)
    share = 500 if change.gpus is None else change.gpu_share
    assert after.request.extra == extra(share, fpga=2)
    assert after.request.gpus == (change.gpus or 0)


def test_a_part_of_a_gpu_puts_a_job_on_one_node():
    after = changed_description(job("a", 4), JobChange(gpus=0, gpu_share=500))
    assert isinstance(after, JobDescription)
    assert (after.request.one_node, after.request.extra) == (True, extra(500))
    again = changed_description(after, JobChange(gpus=1))
    assert isinstance(again, JobDescription)
    assert again.request.extra is None


@pytest.mark.parametrize(("given", "meant"), [(2, (2, 0)), (2.0, (2, 0)), (0.5, (0, 500))])
def test_a_request_sets_whole_gpus_or_a_part_of_one(given: float, meant: tuple[int, int]):
    change = change_of(SetJob(["a"], node_crs={"gpu": given}))
    assert (change.gpus, change.gpu_share) == meant
