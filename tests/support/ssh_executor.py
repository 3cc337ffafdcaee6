"""Executors for a remote host of one run, one after another, with a stub of ssh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.executors.base import ExecutorObserver, NodeLayout, NumberedRecord
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import RunIdentity, Setup
from qcg.pilotjob.executors.ssh.executor import RemoteHost, SshExecutor
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost, JobFiles, NoJobFiles
from qcg.pilotjob.host.records import Ended, Launch, RemotePart, RemoteRequest, Running, Started
from tests.support.fake_ssh import FakeSsh

INSTANCE = "0123456789abcdef"
ANY_CHANNEL = pytest.mark.parametrize("lab", ["serve", pytest.param("one-shot", marks=pytest.mark.long)], indirect=True)
"""For tests of what does not depend on the channel: the other mode belongs to the long tier."""


class Noted(ExecutorObserver):
    """Records the reports of an executor, and acknowledges records as an engine does."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.ready: list[list[Running]] = []
        self.away: list[str] = []
        self.started: dict[str, Started] = {}
        self.ended: dict[str, Ended] = {}
        self.numbers: dict[str, int] = {}
        self.executor: SshExecutor
        self.acknowledges = True
        self.has_open_attempts = False
        """As of a journal that has attempts on the host whose ends are not known."""
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool], patience: float = 20.0) -> None:
        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), patience)

    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        self.notices += notices

    def notice(self, text: str) -> None:
        self.notices.append(text)
        self._changed.set()

    def node_described(self, node: str, layout: NodeLayout) -> None:
        raise AssertionError

    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        assert nodes == [host]
        self.ready.append(live)
        self._changed.set()

    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        for record in records:
            body = record.body
            if isinstance(body, Ended):
                assert body.id not in self.ended, f"{body.id} ended twice"
                self.ended[body.id] = body
            else:
                assert body.id not in self.started, f"{body.id} started twice"
                self.started[body.id] = body
        self.numbers[host] = records[-1].number
        if self.acknowledges:
            asyncio.get_running_loop().call_soon(self.executor.acknowledge, {host: records[-1].number})
        self._changed.set()

    def has_attempts(self, node: str) -> bool:
        return self.has_open_attempts

    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        raise AssertionError

    def host_away(self, host: str, nodes: list[str], reason: str = "") -> None:
        self.away.append(reason)
        self._changed.set()

    def nodes_lost(self, nodes: list[str], message: str) -> None:
        raise AssertionError

    def executor_failed(self, reason: str) -> None:
        raise AssertionError(reason)


def a_launch(seq: int, *argv: str, number: int = 1, wall_time: float | None = None) -> Launch:
    name = f"job{seq}"
    grant: list[Any] = [("wizard", (seq,), ())]
    remote = RemotePart(
        f"job/1/{name}/{number:02d}", "1", name, number, [], [], {}, RemoteRequest(1, 1, 0, 0, wall_time)
    )
    return Launch(
        f"{seq}.{number}",
        list(argv) or ["true"],
        {},
        [],
        f"work/1/{name}",
        None,
        None,
        None,
        None,
        wall_time,
        False,
        grant,
        remote=remote,
    )


class Lab:
    """A fake host, and the executors of successive managers of one run."""

    def __init__(self, tmp_path: Path, far: FakeSsh, channel: str) -> None:
        self.far = far
        self.far_command = far.command
        self.channel = channel
        self.wd = tmp_path / "wd"
        self.run_dir = self.wd / "run"
        self.run_dir.mkdir(parents=True)
        self.acked: dict[str, int] = {}
        self.managers = 0

    def config(self, **values: Any) -> HostConfig:
        given: dict[str, Any] = {"addresses": ("wizard",), "channel": self.channel, "poll_interval": 2.0, **values}
        return HostConfig("wizard", ssh=tuple(self.far_command), **given)

    def start(
        self,
        *,
        files: JobFiles | None = None,
        has_open_attempts: bool = False,
        batch: dict[str, Any] | None = None,
        **values: Any,
    ) -> Noted:
        """`batch`: the batch system of the host, as a manager describes it."""
        self.managers += 1
        observer = Noted()
        observer.has_open_attempts = has_open_attempts
        run = RunIdentity.of("r1", INSTANCE, self.wd, self.run_dir, f"2018041{self.managers}T025047Z")
        host = RemoteHost(self.config(**values), Setup(batch=batch), files=lambda _: files or NoJobFiles())
        observer.executor = SshExecutor(observer, [host], run, self.acked)
        assert observer.executor.open() is None
        observer.executor.start()
        return observer

    def leave(self, observer: Noted) -> None:
        """End as after a kill of the manager: nothing is ended, and the journal has the acknowledged records."""
        self.acked.update(observer.numbers)
        observer.executor.close()

    @property
    def run(self) -> Path:
        return self.far.home / "qcg-run/r1"


def send(observer: Noted, *launches: Launch) -> None:
    for launch in launches:
        observer.executor.launch("wizard", launch)
    observer.executor.flush()


class SlowOutputs(NoJobFiles):
    """Outputs of all jobs, whose copies arrive when the test requests it."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()

    def holds_end(self, ended: Ended) -> bool:
        return True

    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        await self.arrived.wait()
        return ended
