"""Copies of files of remote jobs, and the files that are left when a manager stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from qcg.pilotjob.executors.ssh import copy_lane, shutdown
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost, NoJobFiles
from qcg.pilotjob.executors.ssh.marker import read_states
from qcg.pilotjob.host.records import Ended, Launch
from tests.support.ssh_executor import ANY_CHANNEL, SlowOutputs, a_launch, send


@ANY_CHANNEL
def test_a_stop_while_outputs_are_copied_leaves_the_job_to_the_next_manager(lab, monkeypatch):
    monkeypatch.setattr(shutdown, "LAST_RECORDS", 0.5)

    async def scenario() -> None:
        first = lab.start(files=SlowOutputs())
        send(first, a_launch(1, "sh", "-c", "echo x >> ../../../share/count"))
        await first.until(lambda: "1.1" in first.started)
        await first.executor.shut_down(1, "closed")
        assert first.ended == {}
        assert any("outputs of 1 ended job were not copied" in notice for notice in first.notices)
        assert read_states(lab.run_dir)["wizard"].state == "connected"
        lab.leave(first)
        second = lab.start()
        await second.until(lambda: "1.1" in second.ended)
        assert second.ended["1.1"].exit_code == 0
        await second.executor.shut_down(1, "cancel")
        assert (lab.run / "share/count").read_text() == "x\n"

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_stop_waits_for_outputs_that_arrive_soon(lab):
    async def scenario() -> None:
        files = SlowOutputs()
        observer = lab.start(files=files)
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.started)
        asyncio.get_running_loop().call_later(3.0, files.arrived.set)
        await observer.executor.shut_down(1, "closed")
        assert observer.ended["1.1"].exit_code == 0
        assert read_states(lab.run_dir)["wizard"].state == "closed"

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_second_signal_does_not_wait_for_copies(lab):
    async def scenario() -> None:
        observer = lab.start(files=SlowOutputs())
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.started)
        stopping = asyncio.ensure_future(observer.executor.shut_down(600, "closed"))
        await asyncio.sleep(0)
        observer.executor.hurry()
        await asyncio.wait_for(stopping, 10)
        assert read_states(lab.run_dir)["wizard"].state == "connected"

    asyncio.run(scenario())


@ANY_CHANNEL
def test_a_host_whose_records_are_not_in_the_journal_is_not_marked_as_closed(lab):
    async def scenario() -> None:
        observer = lab.start()
        observer.acknowledges = False
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        await observer.executor.shut_down(1, "closed")
        assert read_states(lab.run_dir)["wizard"].state == "connected"
        assert any("the last records of this host are not in the registry" in notice for notice in observer.notices)

    asyncio.run(scenario())


@pytest.mark.parametrize("has_open_attempts", [True, False])
def test_a_host_with_open_attempts_is_connected_at_the_start_whatever_its_marker_says(lab, has_open_attempts):
    async def scenario() -> None:
        first = lab.start()
        send(first, a_launch(1))
        await first.until(lambda: "1.1" in first.ended)
        await first.executor.shut_down(1, "closed")
        assert read_states(lab.run_dir)["wizard"].state == "closed"
        lab.leave(first)
        second = lab.start(has_open_attempts=has_open_attempts)
        assert second.ready == ([] if has_open_attempts else [[]])
        if has_open_attempts:
            await second.until(lambda: bool(second.ready))
        await second.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


class FailingCopies(NoJobFiles):
    """Copies that fail a number of times while the connection lives, and then succeed."""

    def __init__(self, failures: int, *, by_network: bool = False) -> None:
        self._problem = ConnectionProblem("rsync lost its connection", by_network=by_network)
        self._failures = failures
        self.tried = 0

    def _try(self) -> None:
        self.tried += 1
        if self.tried <= self._failures:
            raise self._problem


class FailingOutputs(FailingCopies):
    def holds_end(self, ended: Ended) -> bool:
        return True

    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        self._try()
        return ended


class FailingInputs(FailingCopies):
    def needs_inputs(self, launch: Launch) -> bool:
        return True

    async def stage_in(self, host: ConnectedHost, launches: Sequence[Launch]) -> dict[str, str]:
        self._try()
        return {}


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_lane, "FIRST_PAUSE", 0.05)


@ANY_CHANNEL
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("kind", [FailingInputs, FailingOutputs])
@pytest.mark.parametrize(("failures", "by_network"), [(4, False), (7, True)])
def test_a_copy_that_fails_while_the_channel_lives_is_repeated(lab, kind, failures, by_network):
    async def scenario() -> None:
        files = kind(failures, by_network=by_network)
        observer = lab.start(files=files)
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        assert observer.ended["1.1"].exit_code == 0
        assert files.tried == failures + 1
        assert observer.away == []
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


@ANY_CHANNEL
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        (FailingInputs, "unstartable", "Its inputs could not be copied to wizard: rsync lost its connection."),
        (FailingOutputs, "staging", "Its outputs could not be copied from wizard: rsync lost its connection."),
    ],
)
def test_a_copy_that_fails_five_times_fails_its_job(lab, kind, reason, message):
    async def scenario() -> None:
        files = kind(100)
        observer = lab.start(files=files)
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        assert (observer.ended["1.1"].reason, observer.ended["1.1"].message) == (reason, message)
        assert files.tried == 5
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


class FailingLogs(FailingCopies):
    def follows_end(self, ended: Ended) -> bool:
        return True

    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        self._try()
        return ended


UNRETRIEVED = (
    "wizard: the logs of 1 attempt were not retrieved; `qcg-pm cat-log` shows them as long as the host has them"
)


@ANY_CHANNEL
@pytest.mark.usefixtures("short_pauses")
def test_logs_that_are_given_up_are_reported_at_once_and_at_the_end(lab):
    async def scenario() -> None:
        observer = lab.start(files=FailingLogs(100))
        send(observer, a_launch(1))
        given_up = "wizard: the logs of 1 attempt could not be retrieved from wizard: rsync lost its connection."
        await observer.until(lambda: given_up in observer.notices)
        assert observer.ended["1.1"].exit_code == 0
        await observer.executor.shut_down(1, "closed")
        assert observer.notices[-1] == UNRETRIEVED
        assert read_states(lab.run_dir)["wizard"].state == "closed"

    asyncio.run(scenario())


def test_logs_of_a_host_that_is_lost_during_the_copy_are_reported_at_the_end(lab, monkeypatch):
    monkeypatch.setattr(shutdown, "LAST_RECORDS", 0.5)

    async def scenario() -> None:
        observer = lab.start(files=FailingLogs(100, by_network=True))
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        lab.far.go_down()
        lab.far.cut()
        await observer.executor.shut_down(1, "closed")
        assert observer.notices[-1] == UNRETRIEVED
        assert read_states(lab.run_dir)["wizard"].state != "closed"

    asyncio.run(scenario())


class RememberedFiles(NoJobFiles):
    """Forgets an attempt when its end is followed, as `RsyncJobFiles` does."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.asked_again: list[str] = []

    def holds_end(self, ended: Ended) -> bool:
        if ended.id in self.forgotten:
            self.asked_again.append(ended.id)
        return False

    def follows_end(self, ended: Ended) -> bool:
        self.forgotten.append(ended.id)
        return False


@ANY_CHANNEL
def test_an_attempt_without_outputs_is_forgotten_with_its_end(lab):
    async def scenario() -> None:
        files = RememberedFiles()
        observer = lab.start(files=files)
        send(observer, a_launch(1))
        await observer.until(lambda: "1.1" in observer.ended)
        assert (files.forgotten, files.asked_again) == (["1.1"], [])
        await observer.executor.shut_down(1, "cancel")

    asyncio.run(scenario())


class SlowInputs(NoJobFiles):
    """Inputs of all jobs. Their first copy arrives at once, the second one when the test requests it."""

    def __init__(self) -> None:
        self.copies = 0
        self.again = asyncio.Event()
        self.arrived = asyncio.Event()

    def needs_inputs(self, launch: Launch) -> bool:
        return True

    async def stage_in(self, host: ConnectedHost, launches: Sequence[Launch]) -> dict[str, str]:
        self.copies += 1
        if self.copies > 1:
            self.again.set()
            await self.arrived.wait()
        return {}


def test_a_job_that_is_cancelled_while_its_inputs_are_copied_once_more_never_starts(lab):
    """The launch was sent when the connection was lost, and has not arrived."""

    async def scenario() -> None:
        files = SlowInputs()
        observer = lab.start(files=files, channel="one-shot")
        lab.far.refuse("jobs-submit")
        send(observer, a_launch(1))
        await observer.until(lambda: bool(observer.away))
        (lab.far.root / "refuses").unlink()
        observer.executor.reconnect("wizard")
        await asyncio.wait_for(files.again.wait(), 20)
        observer.executor.kill("wizard", "1.1", "cancel")
        observer.executor.flush()
        await observer.until(lambda: "1.1" in observer.ended, 5)
        files.arrived.set()
        await observer.executor.poll(["wizard"])
        await observer.executor.shut_down(1, "cancel")
        assert observer.started == {}
        assert "jobs-submit" not in [word for line in lab.far.commands()[-3:] for word in line.split()]

    asyncio.run(scenario())
