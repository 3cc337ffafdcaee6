"""A manager for tests that only exchanges messages with one agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.executors.heartbeats import HeartbeatServer
from qcg.pilotjob.host.records import Ended, Launch, Started
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, Contact
from qcg.pilotjob.wire.keys import Keys

T = TypeVar("T", bound="protocol.FromAgent")
R = TypeVar("R", Started, Ended)

NAME = "n1"
TIMEOUT = 60.0

# Starts an agent with shorter intervals than the defaults. While a named pipe `hang` exists in the run directory,
# reading the contact file hangs, as on a file system that does not respond.
WITH_SETTINGS = """
import importlib, json, sys
from qcg.pilotjob.agent import __main__
from qcg.pilotjob.wire import contact

def open_slowly(path, *how, open_own=contact.open_own, **further):
    if path.with_name("hang").exists():
        open(path.with_name("hang")).close()
    return open_own(path, *how, **further)

contact.open_own = open_slowly
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, setting = name.partition(".")
    module = importlib.import_module("qcg.pilotjob.agent." + module)
    assert hasattr(module, setting), name
    setattr(module, setting, value)
sys.exit(__main__.main())
"""


class Manager:
    """Bound to a new port with new keys, as each manager is."""

    def __init__(self, run_dir: Path, ack: int = 0, *, heartbeat: bool = False) -> None:
        self.run_dir = run_dir
        self.heartbeats: HeartbeatServer | None = None
        self.ack = ack
        self.records: dict[int, Started | Ended] = {}
        self._peer = b""
        self._kept: list[protocol.FromAgent] = []
        self._context = zmq.Context()
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.curve_server = True
        self._socket.curve_secretkey = server_secret
        self._socket.bind("tcp://127.0.0.1:0")
        address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        keys = Keys(*(key.decode() for key in (server_public, server_secret, client_public, client_secret)))
        if heartbeat:
            self.heartbeats = HeartbeatServer(keys, "tcp://127.0.0.1:*", [NAME])
        agents = AgentsContact(address, keys.server_public, keys.client_public, keys.client_secret)
        if self.heartbeats:
            agents = msgspec.structs.replace(agents, heartbeat_address=self.heartbeats.address)
        contact.write(run_dir, Contact(os.getpid(), 0, "host", agents))

    def close(self) -> None:
        if self.heartbeats:
            self.heartbeats.close()
            self.heartbeats = None
        self._socket.close(linger=0)
        self._context.term()

    def send(self, message: protocol.FromManager) -> None:
        self._socket.send_multipart([self._peer, protocol.encode(message)])

    def start(self, *launches: Launch) -> None:
        self.send(protocol.Start(list(launches)))

    def next(self, kind: type[T], timeout: float = TIMEOUT) -> T:
        """The next message of this kind; other messages are kept for later calls."""
        found = self._find(lambda message: isinstance(message, kind), timeout)
        assert isinstance(found, kind)
        return found

    def meet(self, **more: Any) -> protocol.Report:
        """Exchange Hello, Welcome and Report. An agent that waits for its Welcome repeats Hello over a new
        connection."""
        while True:
            message = self._find(lambda message: isinstance(message, (protocol.Hello, protocol.Report)), TIMEOUT)
            if isinstance(message, protocol.Report):
                self._take(message.records)
                return message
            self.send(protocol.Welcome(self.ack, max([self.ack, *self.records]), **more))

    def ended(self, id: str) -> Ended:
        return self._record(Ended, id)

    def started(self, id: str) -> Started:
        return self._record(Started, id)

    def _record(self, kind: type[R], id: str) -> R:
        while True:
            for body in self.records.values():
                if isinstance(body, kind) and body.id == id:
                    return body
            self._take(self.next(protocol.News).records)

    def _take(self, records: list[protocol.WireRecord]) -> None:
        for record in records:
            self.records.setdefault(record.number, record.body)

    def _find(self, wanted: Callable[[protocol.FromAgent], bool], timeout: float) -> protocol.FromAgent:
        deadline = time.monotonic() + timeout
        while True:
            for position, message in enumerate(self._kept):
                if wanted(message):
                    return self._kept.pop(position)
            left = max(0, int((deadline - time.monotonic()) * 1000))
            assert self._socket.poll(left), f"Timed out; received messages: {self._kept}"
            peer, body = self._socket.recv_multipart()
            message = protocol.decode_from_agent(body)
            if isinstance(message, protocol.Hello):
                self._peer = peer  # Other messages are ignored: a late message of an earlier agent may arrive.
            elif isinstance(message, protocol.Beat):
                self.send(message)  # as every manager does: otherwise the agent looks for another one
            self._kept.append(message)


@contextmanager
def manager(run_dir: Path, ack: int = 0, *, heartbeat: bool = False) -> Iterator[Manager]:
    made = Manager(run_dir, ack, heartbeat=heartbeat)
    try:
        yield made
    finally:
        made.close()


class AgentProcess:
    def __init__(
        self, run_dir: Path, *options: str, linger: float = 600.0, settings: dict[str, float] | None = None
    ) -> None:
        """`settings`: such as `{"agent.VERDICT_DELAY": 1000.0}`."""
        self._log = run_dir / "log"
        program = ["-c", WITH_SETTINGS, json.dumps(settings)] if settings else ["-m", "qcg.pilotjob.agent"]
        command = [sys.executable, *program, "--run-dir", str(run_dir), "--name", NAME, "--linger", str(linger)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stderr=log, start_new_session=True)
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(TIMEOUT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """End the agent with all its jobs, unless the test has ended it."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGINT)
            self.wait()


def launch(id: str, *argv: str, wd: Path, wall_time: float | None = None) -> Launch:
    return Launch(
        id=id,
        argv=list(argv),
        env={"QCG_PM_STEP_ID": f"{wd}.{id}"},
        unset=[],
        wd=str(wd),
        stdin=None,
        stdout=f"{id}.out",
        stderr=None,
        cores=None,
        wall_time=wall_time,
        setup=False,
        grant=[(NAME, (0,), ())],
    )
