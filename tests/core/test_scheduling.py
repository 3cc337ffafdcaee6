"""Order and grants of job starts."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.core.effects import Launch, MoreToStart, Transition
from qcg.pilotjob.core.events import HostUnreachable, Schedule
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.submission import sized_requests
from qcg.pilotjob.description.model import Amount, Sharing
from tests.core.core_driver import CoreDriver, job, machine, node
from tests.description.helpers import parse, simple


def test_jobs_start_in_order_of_arrival() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"), job("c"))
    assert driver.schedule() == ["a on n1[0]", "b on n1[1]"]
    driver.end("b")
    assert driver.schedule() == ["c on n1[1]"]


def test_a_pass_reports_that_it_reached_its_limit_and_the_next_one_continues() -> None:
    driver = CoreDriver(machine(3))
    driver.submit(*[job(name) for name in "abcd"])
    assert driver.handle(Schedule(most=2))[1::2] == ["launch a on n1[0]", "launch b on n1[1]"]
    assert driver.effects[-1] == MoreToStart()
    assert driver.handle(Schedule(most=2)) == ["c SCHEDULED", "launch c on n1[2]"]


def test_a_start_emits_a_transition_with_attempt_and_time() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("a"))
    effects = driver.core.handle(Schedule(), 7.0)
    attempt = driver.attempt("a")
    a = driver.core.state.jobs["a"]
    assert effects == [Transition(a, -1, State.SCHEDULED, 7.0, attempt), Launch(attempt)]
    assert (attempt.id, attempt.scheduled, attempt.position) == ("1.1", 7.0, -1)


def test_a_job_that_does_not_fit_is_overtaken() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("small"), job("wide", 2), job("late"))
    assert driver.schedule() == ["small on n1[0]", "late on n1[1]"]
    driver.end("small")
    assert driver.schedule() == []
    driver.end("late")
    assert driver.schedule() == ["wide on n1[0:1]"]


def test_the_first_job_that_fits_gets_the_free_cores() -> None:
    driver = CoreDriver(machine(4))
    driver.submit(job("a", 3), job("b", (1, 4)), job("c"))
    assert driver.schedule() == ["a on n1[0:1:2]", "b on n1[3]"]
    driver.end("a")
    assert driver.schedule() == ["c on n1[0]"]


def test_a_job_with_met_dependencies_keeps_its_order_of_arrival() -> None:
    driver = CoreDriver(machine(1))
    driver.submit(job("first"), job("second", after="first"), job("third"), job("fourth"))
    assert driver.schedule() == ["first on n1[0]"]
    driver.end("first")
    assert driver.schedule() == ["second on n1[0]"]


def test_iterations_start_in_order_before_later_jobs() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=range(5, 11, 2)), job("b"))
    assert driver.schedule() == ["it:5 on n1[0]", "it:7 on n1[1]"]
    driver.end("it:7", "it:5")
    assert driver.schedule() == ["it:9 on n1[0]", "b on n1[1]"]


def test_lines_of_different_requests_keep_the_order_of_arrival() -> None:
    driver = CoreDriver(machine(6))
    driver.submit(job("a", 2), job("b"), job("c", 2), job("d"))
    assert driver.schedule() == ["a on n1[0:1]", "b on n1[2]", "c on n1[3:4]", "d on n1[5]"]


def test_maximum_iters_gives_all_cores_at_once_in_the_order_of_iterations() -> None:
    driver = CoreDriver(machine(10))
    driver.submit(job("it", (1, None), its=3, sharing=Sharing("maximum-iters", "cores")))
    assert driver.schedule() == ["it:0 on n1[0:1:2]", "it:1 on n1[3:4:5]", "it:2 on n1[6:7:8:9]"]


def test_maximum_iters_goes_by_rounds_when_not_all_fit_at_once() -> None:
    driver = CoreDriver(machine(11))
    driver.submit(job("it", (5, None), its=3, sharing=Sharing("maximum-iters", "cores")))
    assert driver.schedule() == ["it:0 on n1[0:1:2:3:4]", "it:1 on n1[5:6:7:8:9:10]"]
    driver.end("it:0", "it:1")
    assert driver.schedule() == ["it:2 on n1[0:1:2:3:4:5:6:7:8:9:10]"]
    assert driver.end("it:2") == ["it:2 SUCCEED", "it SUCCEED", "all done"]


def test_maximum_iters_shares_nodes_too() -> None:
    driver = CoreDriver(machine(1, 1, 1))
    driver.submit(job("it", nodes=(1, None), its=2, sharing=Sharing("maximum-iters", "nodes")))
    assert driver.schedule() == ["it:0 on n1[0]", "it:1 on n2[0],n3[0]"]


def test_split_into_gives_each_at_most_its_part() -> None:
    driver = CoreDriver(machine(7))
    driver.submit(job("it", (1, None), its=4, sharing=Sharing("split-into", "cores", 3)))
    assert driver.schedule() == ["it:0 on n1[0:1]", "it:1 on n1[2:3]", "it:2 on n1[4:5]", "it:3 on n1[6]"]


def test_split_into_without_parts_has_a_part_for_each_iteration() -> None:
    driver = CoreDriver(machine(6))
    driver.submit(job("it", (2, None), its=3, sharing=Sharing("split-into", "cores")))
    assert driver.schedule() == ["it:0 on n1[0:1]", "it:1 on n1[2:3]", "it:2 on n1[4:5]"]


@pytest.mark.parametrize(
    ("amount", "total", "index"),
    [
        ({"scheduler": "maximum-iters"}, 10, 3),
        ({"min": 5, "scheduler": "maximum-iters"}, 11, 3),
        ({"min": 3, "scheduler": "maximum-iters"}, 8, 5),
        ({"scheduler": "split-into"}, 6, 3),
        ({"min": 2, "scheduler": "split-into"}, 7, 3),
        ({"split-into": 3}, 7, 4),
        ({"split-into": 2}, 7, 4),
    ],
)
def test_jobs_expanded_from_one_description_share_like_iterations_of_one_job(
    amount: dict[str, Any], total: int, index: int
) -> None:
    def starts(name: str) -> list[str]:
        """The jobs started in each round."""
        driver = CoreDriver(machine(total))
        driver.submit(*parse(simple(name=name, iterate=[0, index], numCores=amount)))
        rounds: list[str] = []
        while started := driver.schedule():
            rounds += [f"round {len(rounds)}", *started]
            driver.end(*[line.split()[0] for line in started])
        return [line.replace("a:", "a_") for line in rounds]

    together, apart = starts("a"), starts("a_${it}")
    assert apart == together
    assert len([line for line in apart if " on " in line]) == index


def test_jobs_expanded_from_one_description_are_sized_anew_in_a_resumed_run() -> None:
    jobs = parse(simple(name="a_${it}", iterate=[0, 2], numCores={"scheduler": "maximum-iters"}))
    sizes = [
        [sized_requests(CoreDriver(machine(cores)).core.state, job)[0][0].cores for job in jobs] for cores in (3, 8)
    ]
    assert sizes == [[Amount(1, 1), Amount(2, 2)], [Amount(4, 4), Amount(4, 4)]]


def test_gpus_are_never_allocated_twice_and_are_returned() -> None:
    driver = CoreDriver([node("n1", 4, gpus=2)])
    driver.submit(job("a", 1, gpus=1), job("b", 1, gpus=1), job("c", 1, gpus=1), job("d"))
    assert driver.schedule() == ["a on n1[0]", "b on n1[1]", "d on n1[2]"]
    assert driver.attempt("a").grant.parts[0].gpus == ("0",)
    assert driver.attempt("b").grant.parts[0].gpus == ("1",)
    driver.end("a")
    assert driver.schedule() == ["c on n1[0]"]
    assert driver.attempt("c").grant.parts[0].gpus == ("0",)


def test_nothing_starts_where_no_agent_has_reported() -> None:
    driver = CoreDriver(machine(1, 1), available=False)
    driver.submit(job("a"))
    assert driver.schedule() == []
    driver.report("n2")
    assert driver.schedule() == ["a on n2[0]"]


def test_nothing_starts_on_an_unreachable_node_and_its_attempts_run_on() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("a"), job("b"))
    driver.submit(job("c", 2))
    assert driver.schedule() == ["a on n1[0]", "b on n1[1]"]
    driver.end("a")
    assert driver.handle(HostUnreachable(["n1"])) == []
    driver.submit(job("d"))
    assert driver.schedule() == []
    driver.report("n1", live=[driver.running("b")])
    assert driver.schedule() == ["d on n1[0]"]


def test_a_pass_with_nothing_to_do_has_no_effects() -> None:
    assert CoreDriver(machine(1)).schedule() == []


def test_a_hundred_thousand_iterations_are_one_queue_entry() -> None:
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=100_000))
    entries = driver.core.state.jobs["it"].entries
    assert len(entries) == 1
    assert entries[0].ready is None


def test_empty_lines_are_dropped_and_created_anew():
    driver = CoreDriver(machine(4))
    driver.submit(job("blocker", 4), job("later", 3, after="blocker"))
    for size in (1, 2, 3):
        driver.submit(job(f"passing{size}", size))
    assert driver.schedule() == ["blocker on n1[0:1:2:3]"]
    driver.end("blocker")
    assert driver.schedule() == ["later on n1[0:1:2]", "passing1 on n1[3]"]
    driver.end("later", "passing1")
    assert driver.schedule() == ["passing2 on n1[0:1]"]
    driver.end("passing2")
    assert driver.schedule() == ["passing3 on n1[0:1:2]"]
    driver.schedule()
    assert not driver.core.state.queue.lines
