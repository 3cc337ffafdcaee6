"""The agent: one thread that starts, watches and ends jobs, and tells its manager as long as there is one."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import zmq

from qcg.pilotjob import __version__
from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.connection import Connection
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import Ended, Started

TOLD_TO_END = "The agent was told to end, and ended this job."
END_GRACE = 5.0
RETRY = 1.0
STARTS_A_TURN = 16


class Agent:
    def __init__(self, run_dir: Path, name: str, linger: float) -> None:
        self._name = name
        self._linger = linger
        self._ledger = Ledger(str(run_dir / f"agent-{name}.ledger"))
        self._host = JobHost(self._ledger, name, log=say)
        self._connection = Connection(run_dir, say)
        self._poller = zmq.Poller()
        self._wakeup, self._signalled = socket.socketpair()
        self._signals = 0
        self._exiting = False
        self._alone_since = time.monotonic()
        self._trouble = ""

    def run(self) -> None:
        self._watch_signals()
        more = False
        while not (self._exiting and not self._host.busy):
            self._wait(0.0 if more else self._patience())
            for message in self._connection.receive():
                self._handle(message)
            more = self._host.advance(STARTS_A_TURN) and not self._ledger.trouble
            now = time.monotonic()
            self._host.due(now)
            self._tell()
            self._ledger.sync()
            self._connection.keep(now, self._hello())
            if self._forsaken(now):
                say(f"no manager for {self._linger:g} s, and no jobs: the agent ends")
                break
        self._tell()
        self._ledger.close()
        if self._connection.up:
            self._connection.send(protocol.Bye())
        self._connection.close()
        self._host.close()

    def _patience(self) -> float:
        """Seconds until something is to be done without anything having happened."""
        now = time.monotonic()
        deadlines = [self._connection.next_deadline(), self._host.next_deadline(), self._ledger.sync_due()]
        if self._ledger.trouble:
            deadlines.append(now + RETRY)
        return max(min(deadline for deadline in deadlines if deadline is not None) - now, 0.0)

    def _wait(self, seconds: float) -> None:
        """Until a message, a signal, or so long."""
        descriptors: list[zmq.Socket[bytes] | int] = [self._wakeup.fileno()]
        if self._connection.socket is not None:
            descriptors.append(self._connection.socket)
        ready, _, _ = zmq.select(descriptors, [], [], seconds)
        if self._wakeup.fileno() in ready:
            numbers = self._wakeup.recv(4096)
            if signal.SIGCHLD in numbers:
                self._host.reap()
            for _ in range(numbers.count(signal.SIGTERM) + numbers.count(signal.SIGINT)):
                self._end_by_signal()

    def _handle(self, message: protocol.FromManager) -> None:
        if isinstance(message, protocol.Start):
            for refused in self._host.start(message.launches):
                say(f"{refused} was started before; it is not started again")
        elif isinstance(message, protocol.Kill):
            self._host.kill(message.ids)
        elif isinstance(message, protocol.Ack):
            self._ledger.acknowledge(message.number)
        elif isinstance(message, protocol.Welcome):
            self._report(message.ack)
        elif isinstance(message, protocol.Identify):
            self._connection.up = False
            self._connection.send(self._hello())
        elif isinstance(message, protocol.Exit):
            self._exiting = True
            self._host.finish(message.grace)

    def _report(self, ack: int) -> None:
        """Tell a manager everything that it does not know for sure."""
        self._ledger.acknowledge(ack)
        self._host.take_records()
        records = [_record(number, body) for number, body in self._ledger.unacknowledged()]
        self._connection.send(protocol.Report(records, self._host.running()))
        self._connection.up = True

    def _tell(self) -> None:
        """What has happened in this turn; without a manager, the ledger keeps it for the next one."""
        records = self._host.take_records()
        if records and self._connection.up:
            self._connection.send(protocol.News([_record(number, body) for number, body in records]))
        if self._host.trouble != self._trouble:
            self._trouble = self._host.trouble
            say(self._trouble or "the ledger can be written again")

    def _forsaken(self, now: float) -> bool:
        if self._connection.up or self._host.busy:
            self._alone_since = now
        return now - self._alone_since >= self._linger

    def _end_by_signal(self) -> None:
        self._signals += 1
        say("told to end" if self._signals == 1 else "told to end at once")
        self._exiting = True
        self._host.finish(END_GRACE if self._signals == 1 else 0.0, "lost", TOLD_TO_END)

    def _hello(self) -> protocol.Hello:
        cores = sorted(os.sched_getaffinity(0))
        return protocol.Hello(self._name, socket.gethostname(), os.getpid(), cores, __version__)

    def _watch_signals(self) -> None:
        """Signals become bytes on a socket, so that the loop can wait for them and for messages at once."""
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _record(number: int, body: Started | Ended) -> protocol.Record:
    if isinstance(body, Started):
        return protocol.StartedRecord(number, body)
    return protocol.EndedRecord(number, body)


def say(line: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, file=sys.stderr, flush=True)
