"""Who is started when, and on what."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.core.effects import Launch, MoreToStart, Transition
from qcg.pilotjob.core.events import AgentSilent, Schedule
from qcg.pilotjob.core.states import State
from qcg.pilotjob.core.submission import share
from qcg.pilotjob.description.model import Amount, Sharing
from tests.core.desk import Desk, job, machine, node
from tests.description.helpers import parse, simple


def test_jobs_start_in_the_order_they_came() -> None:
    desk = Desk(machine(2))
    desk.submit(job("a"), job("b"), job("c"))
    assert desk.schedule() == ["a on n1[0]", "b on n1[1]"]
    desk.end("b")
    assert desk.schedule() == ["c on n1[1]"]


def test_a_pass_that_may_not_start_all_says_so_and_the_next_one_goes_on() -> None:
    desk = Desk(machine(3))
    desk.submit(*[job(name) for name in "abcd"])
    assert desk.tell(Schedule(most=2))[1::2] == ["launch a on n1[0]", "launch b on n1[1]"]
    assert desk.effects[-1] == MoreToStart()
    assert desk.tell(Schedule(most=2)) == ["c SCHEDULED", "launch c on n1[2]"]


def test_a_start_tells_its_state_its_run_and_its_time() -> None:
    desk = Desk(machine(1))
    desk.submit(job("a"))
    effects = desk.core.handle(Schedule(), 7.0)
    attempt = desk.attempt("a")
    a = desk.core.state.jobs["a"]
    assert effects == [Transition(a, -1, State.SCHEDULED, 7.0, attempt), Launch(attempt)]
    assert (attempt.id, attempt.scheduled, attempt.position) == ("1.1", 7.0, -1)


def test_what_does_not_fit_lets_the_next_one_try() -> None:
    desk = Desk(machine(2))
    desk.submit(job("small"), job("wide", 2), job("late"))
    assert desk.schedule() == ["small on n1[0]", "late on n1[1]"]
    desk.end("small")
    assert desk.schedule() == []
    desk.end("late")
    assert desk.schedule() == ["wide on n1[0:1]"]


def test_the_first_who_fits_gets_what_is_free() -> None:
    desk = Desk(machine(4))
    desk.submit(job("a", 3), job("b", (1, 4)), job("c"))
    assert desk.schedule() == ["a on n1[0:1:2]", "b on n1[3]"]
    desk.end("a")
    assert desk.schedule() == ["c on n1[0]"]


def test_a_job_that_waited_takes_the_place_it_came_with() -> None:
    desk = Desk(machine(1))
    desk.submit(job("first"), job("second", after="first"), job("third"), job("fourth"))
    assert desk.schedule() == ["first on n1[0]"]
    desk.end("first")
    assert desk.schedule() == ["second on n1[0]"]


def test_iterations_start_in_order_before_later_jobs() -> None:
    desk = Desk(machine(2))
    desk.submit(job("it", its=range(5, 11, 2)), job("b"))
    assert desk.schedule() == ["it:5 on n1[0]", "it:7 on n1[1]"]
    desk.end("it:7", "it:5")
    assert desk.schedule() == ["it:9 on n1[0]", "b on n1[1]"]


def test_lines_of_different_requests_keep_the_order_of_arrival() -> None:
    desk = Desk(machine(6))
    desk.submit(job("a", 2), job("b"), job("c", 2), job("d"))
    assert desk.schedule() == ["a on n1[0:1]", "b on n1[2]", "c on n1[3:4]", "d on n1[5]"]


def test_maximum_iters_gives_all_cores_at_once_in_the_order_of_iterations() -> None:
    desk = Desk(machine(10))
    desk.submit(job("it", (1, None), its=3, sharing=Sharing("maximum-iters", "cores")))
    assert desk.schedule() == ["it:0 on n1[0:1:2]", "it:1 on n1[3:4:5]", "it:2 on n1[6:7:8:9]"]


def test_maximum_iters_goes_by_rounds_when_not_all_fit_at_once() -> None:
    desk = Desk(machine(11))
    desk.submit(job("it", (5, None), its=3, sharing=Sharing("maximum-iters", "cores")))
    assert desk.schedule() == ["it:0 on n1[0:1:2:3:4]", "it:1 on n1[5:6:7:8:9:10]"]
    desk.end("it:0", "it:1")
    assert desk.schedule() == ["it:2 on n1[0:1:2:3:4:5:6:7:8:9:10]"]
    assert desk.end("it:2") == ["it:2 SUCCEED", "it SUCCEED", "all done"]


def test_maximum_iters_shares_nodes_too() -> None:
    desk = Desk(machine(1, 1, 1))
    desk.submit(job("it", nodes=(1, None), its=2, sharing=Sharing("maximum-iters", "nodes")))
    assert desk.schedule() == ["it:0 on n1[0]", "it:1 on n2[0],n3[0]"]


def test_split_into_gives_each_at_most_its_part() -> None:
    desk = Desk(machine(7))
    desk.submit(job("it", (1, None), its=4, sharing=Sharing("split-into", "cores", 3)))
    assert desk.schedule() == ["it:0 on n1[0:1]", "it:1 on n1[2:3]", "it:2 on n1[4:5]", "it:3 on n1[6]"]


def test_split_into_without_parts_has_a_part_for_each_iteration() -> None:
    desk = Desk(machine(6))
    desk.submit(job("it", (2, None), its=3, sharing=Sharing("split-into", "cores")))
    assert desk.schedule() == ["it:0 on n1[0:1]", "it:1 on n1[2:3]", "it:2 on n1[4:5]"]


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
def test_jobs_made_from_one_description_share_as_iterations_of_one_job(
    amount: dict[str, Any], total: int, index: int
) -> None:
    def starts(name: str) -> list[str]:
        """What is started, round after round."""
        desk = Desk(machine(total))
        desk.submit(*parse(simple(name=name, iterate=[0, index], numCores=amount)))
        rounds: list[str] = []
        while started := desk.schedule():
            rounds += [f"round {len(rounds)}", *started]
            desk.end(*[line.split()[0] for line in started])
        return [line.replace("a:", "a_") for line in rounds]

    together, apart = starts("a"), starts("a_${it}")
    assert apart == together
    assert len([line for line in apart if " on " in line]) == index


def test_jobs_made_from_one_description_share_anew_what_a_resumed_run_has() -> None:
    jobs = parse(simple(name="a_${it}", iterate=[0, 2], numCores={"scheduler": "maximum-iters"}))
    sizes = [[share(Desk(machine(cores)).core.state, job)[0][0].cores for job in jobs] for cores in (3, 8)]
    assert sizes == [[Amount(1, 1), Amount(2, 2)], [Amount(4, 4), Amount(4, 4)]]


def test_gpus_are_never_given_twice_and_come_back() -> None:
    desk = Desk([node("n1", 4, gpus=2)])
    desk.submit(job("a", 1, gpus=1), job("b", 1, gpus=1), job("c", 1, gpus=1), job("d"))
    assert desk.schedule() == ["a on n1[0]", "b on n1[1]", "d on n1[2]"]
    assert desk.attempt("a").grant.parts[0].gpus == ("0",)
    assert desk.attempt("b").grant.parts[0].gpus == ("1",)
    desk.end("a")
    assert desk.schedule() == ["c on n1[0]"]
    assert desk.attempt("c").grant.parts[0].gpus == ("0",)


def test_nothing_starts_where_no_agent_has_reported() -> None:
    desk = Desk(machine(1, 1), available=False)
    desk.submit(job("a"))
    assert desk.schedule() == []
    desk.report("n2")
    assert desk.schedule() == ["a on n2[0]"]


def test_nothing_starts_where_an_agent_is_silent_and_what_runs_there_runs_on() -> None:
    desk = Desk(machine(2))
    desk.submit(job("a"), job("b"))
    desk.submit(job("c", 2))
    assert desk.schedule() == ["a on n1[0]", "b on n1[1]"]
    desk.end("a")
    assert desk.tell(AgentSilent(["n1"])) == []
    desk.submit(job("d"))
    assert desk.schedule() == []
    desk.report("n1", live=[desk.running("b")])
    assert desk.schedule() == ["d on n1[0]"]


def test_a_pass_with_nothing_to_do_says_nothing() -> None:
    assert Desk(machine(1)).schedule() == []


def test_a_hundred_thousand_iterations_are_one_entry() -> None:
    desk = Desk(machine(2))
    desk.submit(job("it", its=100_000))
    entries = desk.core.state.jobs["it"].entries
    assert len(entries) == 1
    assert entries[0].ready is None


def test_lines_that_have_run_empty_are_forgotten_and_begin_anew():
    desk = Desk(machine(4))
    desk.submit(job("blocker", 4), job("later", 3, after="blocker"))
    for size in (1, 2, 3):
        desk.submit(job(f"passing{size}", size))
    assert desk.schedule() == ["blocker on n1[0:1:2:3]"]
    desk.end("blocker")
    assert desk.schedule() == ["later on n1[0:1:2]", "passing1 on n1[3]"]
    desk.end("later", "passing1")
    assert desk.schedule() == ["passing2 on n1[0:1]"]
    desk.end("passing2")
    assert desk.schedule() == ["passing3 on n1[0:1:2]"]
    desk.schedule()
    assert not desk.core.state.queue.lines
