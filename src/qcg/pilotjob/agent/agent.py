"""The agent: one thread that starts, watches and ends the jobs of a node, and reports to its manager.

It keeps its jobs while there is no manager, and reports to the next one.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import time
from pathlib import Path

from qcg.pilotjob import __version__
from qcg.pilotjob.agent import protocol
from qcg.pilotjob.agent.connection import Connection
from qcg.pilotjob.agent.cpus import cpus_of_cores, usable_cpus
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.log import say
from qcg.pilotjob.agent.poller import Poller
from qcg.pilotjob.agent.simulated_host import SimulatedHost
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.jobhost import END_GRACE, JobHost
from qcg.pilotjob.host.lane_runner import HostLaneRunner, LaneRunner
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.output_streams import OutputStreams
from qcg.pilotjob.host.records import FILES, OUTPUT, STREAMS, Ended, EndReason

CUT_OFF = "The node was cut off from its manager, and its agent ended its jobs before their nodes could be given up."
AGENT_ENDED = "The agent was told to end, and ended this job."
FIRST_CONTACT_TIMEOUT = 60.0
"""Seconds that an agent waits at least for its first manager, as long as the process that started it is alive."""
ORPHAN_TIMEOUT = 5.0
"""Seconds that an agent waits at most for its first manager after the process that started it has died."""
CLOSE_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL when an allocation ends: a batch system may kill all after five seconds."""
VERDICT_DELAY = 1.0
"""Seconds to wait after the end of a job for a signal which shows that the allocation ended it."""
MOST_SIGNALS_OF_ALLOCATION = 3
"""Number of signals that a batch system may send at the end of an allocation; more ask for an end at once."""
FULL_WAKEUP = 200
"""Number of signals read at once that suggests a full wakeup socket, so that others may be missing."""
SEND_INTERVAL = 0.02
"""Seconds between two messages with records while no core waits for work."""
STARTS_PER_TURN = 16
"""Number of starts in one turn of the loop, so that a long batch does not delay messages and ends of jobs."""


class Agent:
    def __init__(
        self,
        run_dir: Path,
        name: str,
        linger: float,
        parent: int = 0,
        *,
        in_allocation: bool = False,
        simulate: bool = False,
        open_files: int = 0,
    ) -> None:
        """`in_allocation`: the batch system ends this agent with its allocation. `open_files`: the soft limit of open
        files that jobs get; 0: the limit of this process."""
        self._linger = linger
        self._ledger = Ledger(str(run_dir / f"agent-{name}.ledger"))
        if self._ledger.unreadable_lines:
            say(f"{self._ledger.unreadable_lines} lines of {self._ledger.path} cannot be read and are ignored")
        files = str(run_dir / FILES)
        self._wakeup, self._signalled = socket.socketpair()
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        self._in_allocation = in_allocation
        self._host = _host(
            self._ledger,
            name,
            files,
            str(run_dir / OUTPUT),
            str(run_dir / STREAMS),
            self._signalled.fileno(),
            in_allocation=self._in_allocation,
            simulate=simulate,
            open_files=open_files,
        )
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        hello = protocol.Hello(
            name, host_name(), os.getpid(), usable_cpus(), __version__, cpus_of_cores(), gpus, protocol.PROTOCOL
        )
        self._poller = Poller()
        self._fence = Fence(self._cut_off, self._set_start_deadline)
        self._connection = Connection(run_dir, hello, self._poller, say, self._fence)
        self._signals = 0
        self._exiting = False
        self._cut_offs_handled = 0
        self._was_connected = False
        self._parent = parent
        """Pid of the manager that started this agent as its child; 0 for none."""
        self._without_manager_since = time.monotonic()
        self._sent_at = 0.0
        self._start_problem = ""

    def run(self) -> None:
        self._watch_signals()
        more = False
        while not self._exiting or self._host.busy or self._has_unwritten_records():
            # Rounded up to milliseconds: a close deadline is met a little late, not after many empty turns.
            ready = self._poller.poll(0 if more else math.ceil(self._poll_timeout() * 1000))
            if self._wakeup.fileno() in ready:
                self._handle_signals()
            if self._host.cut_off.message:
                self._lose_jobs()
            for message in self._connection.receive(ready):
                self._handle(message)
                if self._host.cut_off.message:
                    self._lose_jobs()  # before new jobs of the manager are started
            self._host.sync_ledger()  # before the turn, which offers lanes again that were taken back here
            now = time.monotonic()
            more = self._host.turn(now, STARTS_PER_TURN)
            self._send_records(now)
            self._connection.maintain(now)
            if not self._exiting and self._is_abandoned(now):
                say(f"no manager for {self._manager_timeout():g} s, and no jobs: the agent ends")
                self._exit(END_GRACE, EndReason.CANCEL, "")
        self._send_records(math.inf)
        if self._connection.up:
            self._connection.send(protocol.Bye())
        self._connection.close()
        self._fence.close()
        self._host.close()
        self._ledger.close()
        self._stop_watching_signals()

    def _poll_timeout(self) -> float:
        """Seconds until the next deadline."""
        unsent = self._connection.up and self._ledger.reported < self._ledger.stored
        deadlines = (
            self._connection.next_deadline(),
            self._host.next_deadline(),
            self._ledger.sync_due(),
            self._sent_at + SEND_INTERVAL if unsent else None,
        )
        return max(min(at for at in deadlines if at is not None) - time.monotonic(), 0.0)

    def _handle_signals(self) -> None:
        numbers = self._wakeup.recv(4096)
        for _ in range(numbers.count(signal.SIGTERM) + numbers.count(signal.SIGINT)):
            self._signals += 1
            say("told to end" if self._signals == 1 else "told to end at once")
            # Jobs ended with their allocation have not failed. The batch system may send its signal more than once.
            hurry = self._signals > (MOST_SIGNALS_OF_ALLOCATION if self._in_allocation else 1)
            reason = EndReason.CLOSED if self._in_allocation else EndReason.LOST
            self._exit(0.0 if hurry else CLOSE_GRACE if self._in_allocation else END_GRACE, reason, AGENT_ENDED)
        # With so many signals, the wakeup socket may have been full, and SIGCHLD may be missing.
        if signal.SIGCHLD in numbers or len(numbers) > FULL_WAKEUP:
            self._host.children_ended()

    def _cut_off(self) -> None:
        """Mark all ends of jobs from now on as caused by the fence. Called in the thread of the fence."""
        self._host.cut_off.begin(CUT_OFF)
        with contextlib.suppress(BlockingIOError):
            self._signalled.send(b"\0")

    def _set_start_deadline(self, moment: float) -> None:
        self._host.set_start_deadline(moment)

    def _lose_jobs(self) -> None:
        """Record the jobs killed by the fence as lost, once for each time, also when the lease was renewed since."""
        begun = self._host.cut_off.begun  # before the lease is read, because the next cut-off may begin after that
        if begun > self._cut_offs_handled:
            self._cut_offs_handled = begun
            say("this node is cut off from its manager: its jobs are ended")
            self._host.lose_all()
        if not self._fence.lease_expired:
            self._host.cut_off.end(begun)

    def _end_given_up_jobs(self) -> None:
        """Kill the jobs that the manager took for lost. Before the lease is renewed, which continues stopped jobs."""
        say("the manager has given this node up: its jobs are ended")
        self._host.cut_off.give_up(CUT_OFF)
        self._fence.kill_all()
        self._host.lose_all()
        self._host.cut_off.give_up("")

    def _exit(self, grace: float, reason: str, message: str) -> None:
        self._exiting = True
        self._host.finish(grace, reason, message)

    def _handle(self, message: protocol.FromManager) -> None:
        if isinstance(message, protocol.Start):
            if self._exiting:
                # The report of the next agent lacks these jobs, so the manager sends them again.
                say(f"{len(message.launches)} jobs arrived while this agent ends; the next agent gets them")
                return
            for refused in self._host.start(message.launches):
                say(f"{refused} was started before; it is not started again")
        elif isinstance(message, protocol.Kill):
            self._host.kill(message.ids, message.reason, message.message)
        elif isinstance(message, protocol.Retract):
            self._host.retract(message.ids)
        elif isinstance(message, protocol.Signal):
            self._host.signal(message.ids, message.number)
        elif isinstance(message, protocol.Sweep):
            self._host.sweep({id: f"{message.instance}.{id}" for id in message.ids}, message.grace)
        elif isinstance(message, protocol.Beat):
            self._fence.renew(message.at)
        elif isinstance(message, protocol.Ack):
            self._ledger.acknowledge(message.number)
        elif isinstance(message, protocol.Welcome):
            self._report(message)
        elif isinstance(message, protocol.Identify):
            # Only one Hello for several requests: jobs that the manager sends after a first report would be missing in
            # a second one, and the manager would send them again.
            if self._connection.up:
                self._connection.send_hello()
        elif isinstance(message, protocol.Exit):
            say("the manager told the agent to end")
            self._exit(message.grace, message.reason, "")

    def _report(self, welcome: protocol.Welcome) -> None:
        """Send all records that the manager may not have stored, and all running jobs."""
        self._fence.arm(welcome.instance, welcome.fence)
        if welcome.given_up:
            self._end_given_up_jobs()
        self._ledger.manager_has_seen(welcome.seen)
        self._ledger.acknowledge(welcome.ack)
        records, live = self._host.report()
        self._connection.send(protocol.Report([protocol.record(number, body) for number, body in records], live))
        self._connection.welcomed()

    def _send_records(self, now: float) -> None:
        """Send new records; without a manager they stay in the ledger for the next one. While no core waits for work,
        records of `SEND_INTERVAL` are collected into one message."""
        if not self._connection.up or (self._host.records_can_wait and now < self._sent_at + SEND_INTERVAL):
            self._ledger.flush()
        elif records := self._host.take_records():
            self._sent_at = now
            # The record of an end has the start time, too.
            over = {body.id for _, body in records if isinstance(body, Ended)}
            news = [
                protocol.record(number, body)
                for number, body in records
                if isinstance(body, Ended) or body.id not in over
            ]
            self._connection.send(protocol.News(news))
        for id, nodes, grace in self._host.take_multinode_ends():
            self._connection.send(protocol.Leaving(id, nodes, grace))
        swept = self._host.take_swept()
        if swept and self._connection.up:
            self._connection.send(protocol.Swept(swept))
        if self._host.start_problem != self._start_problem:
            self._start_problem = self._host.start_problem
            say(self._start_problem or "the ledger can be written again")

    def _has_unwritten_records(self) -> bool:
        """Whether a full disk keeps records out of the ledger, so that they would be lost with this process. Ignored
        after a second signal to end."""
        return self._ledger.stored < self._ledger.last and self._signals < 2

    def _is_abandoned(self, now: float) -> bool:
        if self._connection.up or self._host.busy:
            self._without_manager_since = now
            self._was_connected = self._was_connected or self._connection.up
            return False
        return now - self._without_manager_since >= self._manager_timeout()

    def _manager_timeout(self) -> float:
        if self._was_connected:
            return self._linger
        # A living manager that started this agent may need a while to connect it.
        if self._parent in (0, os.getppid()):
            # A missing contact file means that the run is over, or that this node sees the file up to a minute late.
            return FIRST_CONTACT_TIMEOUT if self._connection.is_run_over else max(self._linger, FIRST_CONTACT_TIMEOUT)
        # If this agent was slow to start, another manager may have resumed and finished the run with another agent.
        return 0.0 if self._connection.is_run_over else min(self._linger, ORPHAN_TIMEOUT)

    def _watch_signals(self) -> None:
        """Turn signals into bytes on a socket, so that the loop can poll for signals and messages together."""
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        self._poller.register(self._wakeup.fileno())
        # SIGHUP gets a handler and is not ignored, because jobs would inherit an ignored signal.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)

    def _stop_watching_signals(self) -> None:
        """Close the wakeup sockets. The handlers stay, so that a late SIGTERM does nothing."""
        signal.set_wakeup_fd(-1)
        self._wakeup.close()
        self._signalled.close()


def _host(
    ledger: Ledger,
    name: str,
    files: str,
    output: str,
    streams: str,
    wakeup: int,
    *,
    in_allocation: bool,
    simulate: bool,
    open_files: int,
) -> JobHost:
    verdict_delay = VERDICT_DELAY if in_allocation else 0.0
    if simulate:
        return SimulatedHost(ledger, name, files, log=say, verdict_delay=verdict_delay)
    return JobHost(
        ledger,
        name,
        files,
        log=say,
        verdict_delay=verdict_delay,
        output=output,
        open_files=open_files,
        lane_runner=_lane_runner(ledger, wakeup, open_files),
        streams=OutputStreams(streams, name, wakeup, say),
    )


def prepare() -> None:
    """Do ahead what takes time at the start of an agent."""
    cpus_of_cores()
    with contextlib.suppress(ImportError):
        import qcg.pilotjob.agent.relay_runner  # noqa: F401


def _lane_runner(ledger: Ledger, wakeup: int, open_files: int) -> LaneRunner:
    """The relay in C where it was compiled, else the slower one in Python."""
    try:
        from qcg.pilotjob.agent.relay_runner import RelayLaneRunner

        return RelayLaneRunner(ledger, wakeup=wakeup, pause=SEND_INTERVAL, open_files=open_files)
    except ImportError:
        return HostLaneRunner()
    except OSError as error:
        say(f"jobs are started without the relay, because it cannot start a thread: {error.strerror}")
        return HostLaneRunner()
