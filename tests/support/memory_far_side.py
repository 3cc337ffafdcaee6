"""The far sides of remote hosts in memory: they answer the requests of a channel without ssh and processes."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.frames import Frame
from qcg.pilotjob.executors.ssh.transport import ChannelObserver, Transport
from qcg.pilotjob.host.records import Ended, Running, Started

LEDGER = "login"


class FarSide:
    """One remote host: it records messages to it, and the test makes its reports."""

    def __init__(self, sent: list[str]) -> None:
        """`sent`: gets a line for each message to the host."""
        self.reachable = asyncio.Event()
        self.live: list[Running] = []
        self.last_record = 0
        self._sent = sent
        self._acknowledged = 0
        self._channel: ChannelObserver | None = None

    def cut(self) -> None:
        self.reachable.clear()
        assert self._channel is not None
        self._channel.ended(ConnectionProblem("the connection was cut"))

    def report(self, *bodies: Started | Ended, first: int = 0) -> None:
        first = first or self.last_record + 1
        records = [protocol.record(number, body) for number, body in enumerate(bodies, first)]
        self.last_record = max(self.last_record, first + len(bodies) - 1)
        assert self._channel is not None
        encoded = msgspec.json.decode(msgspec.json.encode(records))
        self._channel.event({"event": "records", "ledger": LEDGER, "records": encoded})

    def open(self, channel: ChannelObserver) -> None:
        self._channel = channel

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        do = request["do"]
        if do == "remote-init":
            return {"epoch": 1, "ledgers": {LEDGER: self.last_record}}
        if do == "jobs-submit":
            self._sent += [f"launch {launch.id}" for launch in request["launches"]]
            return {"results": {launch.id: "accepted" for launch in request["launches"]}}
        if do == "jobs-kill":
            self._note_order(request)
        elif do == "jobs-poll":
            number = request["acks"].get(LEDGER, 0)
            if number > self._acknowledged:
                self._acknowledged = number
                self._sent.append(f"acknowledge {number}")
            return {"live": [list(running) for running in self.live]}
        return {}

    def _note_order(self, request: dict[str, Any]) -> None:
        how = request["how"]
        if how == "kill" and "grace" in request:
            self._sent.append(f"exit {request['grace']:g} {request['reason']}")
        else:
            before = f"signal {request['signal']}" if how == "signal" else how
            after = f"{request.get('reason', '')} {request.get('message', '')}"
            self._sent += [f"{before} {id} {after}".rstrip() for id in request["ids"]]


class MemoryTransport(Transport):
    """A channel to a far side in memory."""

    far_sides: ClassVar[dict[str, FarSide]]
    """Set in a subclass that replaces `ServeTransport`."""

    def __init__(self, config: HostConfig, address: str, run: str, control: Control, observer: ChannelObserver) -> None:
        super().__init__(config, address, run, control)
        self._far = self.far_sides[config.name]
        self._observer = observer

    async def open(self) -> None:
        await self._far.reachable.wait()
        self._far.open(self._observer)

    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: object = None) -> Frame:
        return Frame(self._far.answer(request), b"")

    def close(self) -> None:
        pass
