"""Processes that are watched, and signalled, with process descriptors or without them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from qcg.pilotjob.executors import process
from qcg.pilotjob.executors.process import WatchedProcess
from qcg.pilotjob.host.process_tree import Process, read_process
from tests.support.waiting import wait_for


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "300"])
    yield child
    child.kill()
    child.wait()


@pytest.fixture(params=[True, False], ids=["descriptor", "polling"])
def has_descriptors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(process, "_descriptor_of", lambda pid: -1)
    return bool(request.param)


@pytest.mark.usefixtures("has_descriptors")
def test_the_exit_of_a_process_is_reported_after_its_constructor_has_returned():
    child = subprocess.Popen(["true"])
    wait_for(lambda: (found := read_process(child.pid)) is None or found.dead)

    async def test() -> None:
        exited: list[WatchedProcess] = []
        watched = WatchedProcess(child.pid, child, lambda: exited.append(watched))
        await asyncio.wait_for(watched.exited.wait(), 30)
        assert exited == [watched]

    asyncio.run(test())


@pytest.mark.usefixtures("has_descriptors")
@pytest.mark.parametrize(
    ("end", "number"), [(WatchedProcess.terminate, signal.SIGTERM), (WatchedProcess.kill, signal.SIGKILL)]
)
def test_a_watched_process_gets_signals(
    sleeper: subprocess.Popen[bytes], end: Callable[[WatchedProcess], None], number: signal.Signals
):
    async def test() -> None:
        watched = WatchedProcess(sleeper.pid, sleeper, lambda: None)
        end(watched)
        await asyncio.wait_for(watched.exited.wait(), 30)
        assert sleeper.returncode == -number

    asyncio.run(test())


@pytest.mark.usefixtures("has_descriptors")
def test_signals_to_a_process_that_has_just_exited_are_ignored(sleeper: subprocess.Popen[bytes]):
    async def test() -> None:
        watched = WatchedProcess(sleeper.pid, None, lambda: None)
        sleeper.kill()
        sleeper.wait()
        watched.terminate()
        watched.kill()
        watched.let_go()

    asyncio.run(test())


@pytest.mark.parametrize("has_exited", [False, True])
def test_a_later_process_with_the_same_pid_gets_no_signal(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, has_exited: bool
):
    """By polling, where the kernel does not distinguish two processes with one pid."""

    def earlier(pid: int) -> Process | None:
        found = read_process(pid)
        return None if has_exited or found is None else found._replace(start_ticks=found.start_ticks - 1)

    async def test() -> None:
        monkeypatch.setattr(process, "_descriptor_of", lambda pid: -1)
        monkeypatch.setattr(process, "read_process", earlier)
        watched = WatchedProcess(sleeper.pid, None, lambda: None)
        watched.terminate()
        watched.kill()
        watched.let_go()
        with pytest.raises(subprocess.TimeoutExpired):
            sleeper.wait(0.2)

    asyncio.run(test())


def test_letting_a_process_go_twice_does_nothing(sleeper: subprocess.Popen[bytes]):
    async def test() -> None:
        watched = WatchedProcess(sleeper.pid, None, lambda: None)
        watched.let_go()
        watched.let_go()

    asyncio.run(test())
