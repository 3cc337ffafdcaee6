"""The fence: what a node that is cut off does to its jobs, and when it leaves them alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.signs import STALE, Signs
from qcg.pilotjob.host.tree import MARKER
from qcg.pilotjob.wire import contact
from tests.agent.manager import AgentProcess, Manager, launch, manager
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

INSTANCE = "pilot"


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence(lambda: None)
    yield made
    made.close()


@pytest.fixture
def marked() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"], env={**os.environ, MARKER: mark}, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_all_that_carries_the_marks_of_the_pilot_is_killed_and_nothing_else(
    fence: Fence, marked: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    ours, theirs = marked(f"{INSTANCE}.1.1"), marked("another.1.1")
    fence.known_at(time.monotonic())
    fence.set(INSTANCE, 0.2)
    assert ours.wait(20) == -9
    assert theirs.poll() is None


def test_it_says_that_it_falls_before_anything_dies(marked: Callable[[str], subprocess.Popen[bytes]]) -> None:
    job = marked(f"{INSTANCE}.1.1")
    lived: list[bool] = []
    fence = Fence(lambda: lived.append(job.poll() is None))
    fence.known_at(time.monotonic())
    fence.set(INSTANCE, 0.1)
    job.wait(20)
    fence.close()
    assert lived == [True]


def test_a_beat_that_is_answered_keeps_it_up(fence: Fence) -> None:
    fence.known_at(time.monotonic())
    fence.set(INSTANCE, 1000.0)
    assert not fence.has_fallen
    fence.known_at(time.monotonic() - 2000)
    assert not fence.has_fallen


def test_it_does_not_fall_where_there_is_no_manager_any_more(fence: Fence) -> None:
    fence.known_at(time.monotonic() - 100)
    fence.lift()
    fence.set(INSTANCE, 0.1)
    assert not fence.has_fallen
    fence.known_at(time.monotonic() - 0.05)
    wait_for(lambda: fence.has_fallen, what="the fence is down again")


def test_a_contact_file_that_is_touched_speaks_for_a_manager_and_a_stale_one_against_it():
    signs = Signs()
    for second in range(10):
        assert not signs.saw(second, float(second))
        assert not signs.gone
    signs.saw(9, 9.0 + STALE)
    assert signs.gone
    assert signs.saw(10, 16.0)
    assert not signs.gone


def test_no_contact_file_means_no_manager_and_one_that_cannot_be_read_means_nothing():
    signs = Signs()
    signs.saw(None, 0.0)
    assert signs.gone
    signs.could_not_look()
    assert not signs.gone


class Keeper:
    """What a manager does that is alive and cannot be reached: it touches its contact file."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / contact.FILE_NAME
        self._touched = 0.0

    def touch(self) -> None:
        if time.monotonic() - self._touched > 1:
            os.utime(self._path)
            self._touched = time.monotonic()


def meet(first: Manager, fence: float) -> None:
    first.next(protocol.Hello)
    first.send(protocol.Welcome(0, 0, INSTANCE, fence))
    first.next(protocol.Report)


def test_an_agent_that_is_cut_off_from_a_living_manager_ends_its_jobs_and_says_they_are_lost(
    first: Manager, agent: AgentProcess, run_dir: Path
) -> None:
    meet(first, fence=8.0)
    first.start(launch("a", "sleep", "1000", wd=run_dir)._replace(env={MARKER: f"{INSTANCE}.a"}))
    pid = first.started("a").pid
    keeper = Keeper(run_dir)

    def ended() -> bool:
        keeper.touch()
        return not is_alive(pid)

    wait_for(ended, timeout=40, what="the job of the node that is cut off ends")
    with manager(run_dir) as second:
        second.meet()
        ended_record = second.ended("a")
        assert (ended_record.reason, "cut off" in ended_record.message) == ("lost", True)
        second.start(launch("b", "true", wd=run_dir))
        assert second.ended("b").exit_code == 0


def test_an_agent_whose_manager_has_died_keeps_its_jobs(first: Manager, agent: AgentProcess, run_dir: Path) -> None:
    meet(first, fence=7.0)
    first.start(launch("a", "sleep", "1000", wd=run_dir)._replace(env={MARKER: f"{INSTANCE}.a"}))
    pid = first.started("a").pid
    first.close()
    time.sleep(9)  # longer than the fence allows; and nobody touches the contact file
    assert is_alive(pid)
    with manager(run_dir, ack=1) as second:
        assert [running.id for running in second.meet().live] == ["a"]
