"""Counts of waiting jobs by reason, and remaining work."""

from __future__ import annotations

from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.waiting import count_waiting, dependent_example, held_example
from qcg.pilotjob.core.waiting_reasons import WaitingGroup, waiting_groups
from qcg.pilotjob.core.workload import workload
from qcg.pilotjob.description.model import JobDescription, RetryPolicy
from tests.core.core_driver import CoreDriver, job, machine


def waiting_in(driver: CoreDriver) -> tuple[dict[int, int], int, int]:
    """Counts of ready entries by number of cores, of held entries, and of entries with dependencies."""
    found = count_waiting(driver.core.state)
    by_cores: dict[int, int] = {}
    for line, number in found.in_lines:
        by_cores[line.least_cores] = by_cores.get(line.least_cores, 0) + number
    total = sum(by_cores.values()) + found.held + found.paused + found.dependent
    assert total == driver.core.state.unit_counts[QUEUED]
    return by_cores, found.held, found.dependent


def test_jobs_and_iterations_are_counted_by_request():
    driver = CoreDriver(machine(4))
    driver.submit(job("a"), job("its", its=10), job("wide", 4, its=3), job("b", 2))
    assert waiting_in(driver) == ({1: 11, 4: 3, 2: 1}, 0, 0)
    driver.schedule()
    assert waiting_in(driver) == ({1: 7, 4: 3, 2: 1}, 0, 0)
    driver.cancel("wide:1")
    assert waiting_in(driver) == ({1: 7, 4: 2, 2: 1}, 0, 0)
    driver.cancel("b")
    assert waiting_in(driver) == ({1: 7, 4: 2}, 0, 0)


def test_held_and_dependent_ones_are_counted_apart():
    driver = CoreDriver(machine(1))
    driver.submit(job("a"), job("b", after="a"), job("its", its=5, after="a"), job("h", hold=True), job("k", its=4))
    assert waiting_in(driver) == ({1: 5}, 1, 6)
    driver.hold("k")
    assert waiting_in(driver) == ({1: 1}, 5, 6)
    driver.release("k:2")
    assert waiting_in(driver) == ({1: 2}, 4, 6)
    driver.hold("b")
    assert waiting_in(driver)[1] == 5
    assert held_example(driver.core.state) in ("h", "b", "k")
    found = dependent_example(driver.core.state)
    assert found is not None
    assert found[0].name == "its"


def test_same_index_dependents_are_ready_one_by_one():
    driver = CoreDriver(machine(2))
    driver.submit(job("a", its=4), job("b", its=4, after="a:${it}"))
    assert waiting_in(driver) == ({1: 4}, 0, 4)
    driver.schedule()
    driver.end("a:0")
    assert waiting_in(driver) == ({1: 3}, 0, 3)


def test_each_group_has_the_reason_of_its_first_job():
    driver = CoreDriver(machine(2))
    descriptions = {one.name: one for one in (job("run", its=2), job("a", its=3), job("wide", 2), job("b", after="a"))}
    driver.submit(*descriptions.values())
    driver.schedule()
    state = driver.core.state
    groups = waiting_groups(state, count_waiting(state), driver.now, 8, lambda one: descriptions[one.name])
    assert [(group.number, group.reason, group.example) for group in groups] == [
        (3, "resources", "a:0"),
        (1, "resources", "wide"),
        (1, "dependencies", "b"),
    ]
    assert groups[0].sentence == "it needs 1 core, and 0 of 2 are free"
    assert len(waiting_groups(state, count_waiting(state), driver.now, 1, lambda one: descriptions[one.name])) == 1


def groups_of(*jobs: JobDescription) -> list[WaitingGroup]:
    """The groups of waiting jobs once these jobs were scheduled on four cores."""
    driver = CoreDriver(machine(4))
    driver.submit(*jobs)
    driver.schedule()
    descriptions = {one.name: one for one in jobs}
    state = driver.core.state
    return waiting_groups(state, count_waiting(state), driver.now, 8, lambda one: descriptions[one.name])


def test_a_group_has_no_reason_that_holds_for_its_first_job_alone():
    (both,) = groups_of(job("first", 3, wt=100), job("wide", 4), job("wider", 4))
    assert (both.number, both.sentence) == (2, "it needs 4 cores, and 1 of 4 is free")
    (alone,) = groups_of(job("first", 3, wt=100), job("wide", 4))
    assert alone.number == 1
    assert alone.sentence.startswith("it needs 4 cores, and 1 of 4 is free; expected to start by ")


def test_jobs_that_wait_for_different_jobs_have_one_as_an_example():
    sentences = [
        [group.sentence for group in groups_of(job("a", 4), *after) if group.reason == "dependencies"]
        for after in ([job("b", after="a")], [job("b", after="a"), job("c", after="b")])
    ]
    assert sentences == [
        ["it waits for 'a', which is SCHEDULED"],
        ["it waits for other jobs, for example 'b', which is QUEUED"],
    ]


def test_the_work_left_has_durations_and_places():
    driver = CoreDriver(machine(4, 4))
    driver.submit(job("short", its=30), job("wide", 4, its=2), job("whole", nodes=1))
    driver.schedule()
    driver.start("short:0")
    driver.end("short:0")
    state = driver.core.state
    by_waiting = {load.waiting: load for load in workload(state, count_waiting(state).in_lines, driver.now)}
    assert by_waiting[22].places == 8
    assert by_waiting[22].mean == 1.0  # each event of the driver takes a second
    assert by_waiting[22].running == 7
    assert by_waiting[2].places == 2
    assert by_waiting[2].mean is None
    assert by_waiting[1].places == 2


def test_an_attempt_far_beyond_the_average_takes_as_long_again():
    driver = CoreDriver(machine(2))
    driver.submit(job("short"), job("long"))
    driver.schedule()
    driver.start("long")
    driver.start("short")
    driver.end("short")
    state = driver.core.state
    attempt = state.jobs["long"].attempt
    assert attempt is not None
    average = entry_of(attempt.job, -1).line.durations.mean
    remaining = {
        elapsed: workload(state, [], attempt.started + elapsed)[0].longest for elapsed in (0.0, average, 9 * average)
    }
    assert remaining == {0.0: average, average: 0.1 * average, 9 * average: 8 * average}


def test_a_cancelled_job_does_not_pause_any_more():
    driver = CoreDriver(machine(2, 2))
    retry = RetryPolicy({"exit": 1}, delay=3600.0)
    driver.submit(job("a", retry=retry), job("it", its=2, retry=retry), job("b", outcomes="afterany=a"))
    driver.schedule()
    for name in ("a", "it:0", "it:1"):
        driver.start(name)
        driver.end(name, exit_code=1)
    assert count_waiting(driver.core.state).paused == 3
    driver.cancel("a", "it")
    assert count_waiting(driver.core.state).paused == 0
    assert not driver.core.state.health.avoiding


def test_a_held_iteration_that_was_cancelled_does_not_count_as_held():
    driver = CoreDriver(machine(1))
    driver.submit(job("x", its=3), job("y", its=3))
    driver.hold("x:0", "x:1", "y")
    driver.cancel("x:0", "y:2")
    assert waiting_in(driver) == ({1: 1}, 3, 0)
    assert held_example(driver.core.state) == "x:1"


def test_a_job_that_may_use_any_node_again_is_counted_once():
    driver = CoreDriver(machine(1, 1))
    driver.submit(job("a", retry=RetryPolicy({"exit": 1})))
    driver.schedule()
    driver.start("a")
    driver.end("a", exit_code=1)
    driver.drain("n2")
    driver.submit(job("b"), job("c"))
    assert driver.schedule() == ["b on n1[0]"]
    driver.now += 100
    assert driver.schedule() == []
    assert waiting_in(driver) == ({1: 2}, 0, 0)
