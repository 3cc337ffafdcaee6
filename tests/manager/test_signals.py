"""Signals to a manager, and the shutdown requests that follow from them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.ports import FileProgress
from qcg.pilotjob.manager.run_result import ManagerEnd, RunResult
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.manager.signals import EarlySignals, SignalWatch

HUP, INT, TERM = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


class Watched:
    """A signal handler without a manager, and its notices."""

    def __init__(self, *, in_allocation: bool = False) -> None:
        self.notices: list[str] = []
        self.end_of_allocation: list[str] = []
        self.request = ShutdownRequest()
        engine: Any = SimpleNamespace(
            notice=self.notices.append,
            commits=SimpleNamespace(try_to_commit=lambda: None, stalled=False),
            state=SimpleNamespace(
                unfinished=20, unfinished_iterations=70, executing=4, attempts={}, unreachable_since={}
            ),
        )
        self.state = engine.state
        sequence: Any = SimpleNamespace(waits_for_disk=False)
        deadline: Any = SimpleNamespace(end_now=self.end_of_allocation.append)
        self.early = EarlySignals()
        self.watch = SignalWatch(self.early, engine, self.request, sequence, deadline, in_allocation=in_allocation)

    def gets(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.watch._received(number)


def within(test: Any) -> None:
    async def run() -> None:
        test()
        for number in (HUP, INT, TERM):
            asyncio.get_running_loop().remove_signal_handler(number)

    asyncio.run(run())


@pytest.mark.parametrize("number", [HUP, INT, TERM], ids=lambda number: number.name)
def test_the_first_signal_requests_a_shutdown_with_a_grace_period(number: signal.Signals):
    def test() -> None:
        watched = Watched()
        watched.gets(number)
        assert (watched.request.cause, watched.request.reason) == (Cause.SIGNAL, f"the manager got {number.name}")
        assert not watched.request.urgent.is_set()
        assert watched.watch.first == number
        (notice,) = watched.notices
        running = "4 running attempts have 5 s to end (the next signal kills them)"
        assert notice == f"{number.name}: stopping. {running}; 20 jobs with 70 iterations are left for --resume"

    within(test)


def test_a_second_signal_names_the_hosts_whose_jobs_it_cannot_kill():
    def test() -> None:
        watched = Watched()
        for node in ("n1", "wizard"):
            grant = SimpleNamespace(parts=[SimpleNamespace(node=node)])
            watched.state.attempts[node] = SimpleNamespace(grant=grant)
        watched.gets(INT, INT)
        watched.state.unreachable_since.update(wizard=1.0, unused=1.0)
        watched.gets(INT)
        assert watched.notices[1:] == [
            "SIGINT: running jobs are killed at once",
            "SIGINT: running jobs are killed at once, except on wizard, which is unreachable",
        ]

    within(test)


@pytest.mark.parametrize(
    ("numbers", "urgent"),
    [
        ((INT, INT), True),
        ((INT, TERM), True),
        ((HUP, TERM), True),
        ((HUP, HUP), False),  # a closed terminal: SIGHUP from the kernel, and from the shell
        ((TERM, HUP), False),
    ],
)
def test_a_second_sigint_or_sigterm_makes_it_urgent(numbers: tuple[signal.Signals, ...], urgent: bool):
    def test() -> None:
        watched = Watched()
        watched.gets(*numbers)
        assert watched.request.urgent.is_set() == urgent
        assert watched.watch.first == numbers[0]
        assert len(watched.notices) == 2

    within(test)


def test_a_signal_during_finish_makes_it_urgent_and_changes_nothing_else():
    def test() -> None:
        watched = Watched()
        watched.request.request(Cause.FINISH, "the manager was told to finish")
        watched.gets(INT)
        assert watched.request.cause is Cause.FINISH
        assert watched.request.urgent.is_set()

    within(test)


def test_inside_an_allocation_sigterm_is_the_end_of_the_allocation_however_often_it_comes():
    def test() -> None:
        watched = Watched(in_allocation=True)
        watched.gets(TERM, TERM)
        assert watched.end_of_allocation == ["the allocation ends (SIGTERM)"] * 2
        assert watched.watch.first == 0
        assert not watched.request.urgent.is_set()
        watched.gets(INT, TERM)
        assert watched.request.urgent.is_set()

    within(test)


def test_the_first_cause_counts_unless_an_unexpected_error_occurs():
    def test() -> None:
        request = ShutdownRequest()
        request.request(Cause.TIME, "the time is over")
        request.request(Cause.FINISH_AND_CANCEL, "told")
        assert (request.cause, request.reason) == (Cause.TIME, "the time is over")
        request.request(Cause.DEFECT, "an unexpected error occurred")
        assert (request.cause, request.urgent.is_set()) == (Cause.DEFECT, True)

    within(test)


# -- exit codes -------------------------------------------------------------------------------------------------------


def ended(tmp_path: Any, cause: Cause, *states: State, **more: Any) -> RunResult:
    counts = [states.count(state) for state in State]
    return RunResult(
        run_dir=tmp_path,
        counts=counts,
        end=ManagerEnd(cause, "it ended", more.pop("signal", 0), more.pop("unwritten", False)),
        requests=FileProgress(more.pop("request_errors", 0), more.pop("unread", 0), more.pop("refusals", ())),
        **more,
    )


@pytest.mark.parametrize(
    ("cause", "states", "number", "code"),
    [
        (Cause.DONE, [State.SUCCEED], 0, 0),
        (Cause.DONE, [State.SUCCEED, State.FAILED], 0, 1),
        (Cause.FINISH, [State.SUCCEED, State.CANCELED], 0, 1),
        (Cause.FINISH, [State.CANCELED, State.QUEUED], 0, 4),
        (Cause.FINISH_AND_CANCEL, [State.CANCELED], 0, 1),
        (Cause.REQUESTS_READ, [State.QUEUED], 0, 4),
        (Cause.TIME, [State.QUEUED], 0, 4),
        (Cause.SIGNAL, [State.QUEUED], INT, 130),
        (Cause.SIGNAL, [State.QUEUED], TERM, 143),
        (Cause.SIGNAL, [State.QUEUED], HUP, 129),
        (Cause.NO_HOST, [State.QUEUED], 0, 4),
        (Cause.NO_HOST, [], 0, 3),
        (Cause.DEFECT, [State.QUEUED], 0, 3),
    ],
)
def test_the_exit_code_depends_on_the_end_of_the_manager(
    tmp_path: Any, cause: Cause, states: list[State], number: int, code: int
):
    assert ended(tmp_path, cause, *states, signal=number).exit_code == code


def test_the_last_line_has_the_exact_command_also_for_a_directory_with_spaces(tmp_path: Any):
    run_dir = tmp_path / "a b"
    left = "1 job is left, because it ended. Continue with: "
    for more, command in (({}, "qcg-pm run"), ({"serves": True}, "qcg-pm-service --net")):
        line = ended(run_dir, Cause.SIGNAL, State.QUEUED, **more).last_line()
        assert line == f"{left}{command} --resume '{run_dir}'"
    assert ended(run_dir, Cause.FINISH, State.SUCCEED).last_line() == ""


def test_a_signal_during_the_start_takes_effect_when_the_manager_is_ready():
    async def test() -> None:
        watched = Watched()
        signal.raise_signal(INT)
        while not watched.early.received:  # noqa: ASYNC110 the loop itself fills it
            await asyncio.sleep(0.001)
        assert not watched.request.is_requested
        watched.watch.begin()
        assert (watched.request.cause, watched.watch.first) == (Cause.SIGNAL, INT)
        watched.early.end()

    asyncio.run(test())


@pytest.mark.parametrize(("number", "hurries"), [(INT, True), (TERM, True), (HUP, False)])
def test_a_signal_after_the_end_of_the_run_only_shortens_the_rest(number: signal.Signals, hurries: bool):
    async def test() -> None:
        watched = Watched()
        watched.watch.begin()
        watched.watch.end()
        signal.raise_signal(number)
        signal.raise_signal(number)
        await asyncio.sleep(0)
        if hurries:
            await asyncio.wait_for(watched.watch.hurry.wait(), 60)
        else:
            await asyncio.sleep(0.1)
            assert not watched.watch.hurry.is_set()
        assert (watched.watch.first, watched.request.is_requested) == (0, False)
        watched.early.end()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("jobs", "requests", "sentence"),
    [
        (2, 0, "2 jobs are left, because it was told so."),
        (0, 1, "1 request of the file is left, because it was told so."),
        (0, 3, "3 requests of the file are left, because it was told so."),
        (1, 2, "1 job is left, and 2 requests of the file, because it was told so."),
    ],
)
def test_the_last_line_counts_remaining_jobs_and_requests(jobs: int, requests: int, sentence: str):
    counts = [jobs, *[0] * (len(State) - 1)]
    ending = RunResult(
        run_dir=Path("/x"),
        counts=counts,
        end=ManagerEnd(Cause.TIME, "it was told so"),
        requests=FileProgress(unread=requests),
    )
    assert ending.exit_code == 4
    assert ending.last_line(followed=True) == sentence
