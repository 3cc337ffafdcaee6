"""The agent: one thread that starts, watches and ends jobs, and tells its manager as long as there is one."""

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
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.lane_runner import HostLaneRunner, LaneRunner
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import FILES, OUTPUT, Ended, EndReason

CUT_OFF = "The node was cut off from its manager, and ended its jobs before others could be started for them."
TOLD_TO_END = "The agent was told to end, and ended this job."
FIRST_MEETING = 60.0
"""Seconds that an agent waits at least for its first manager, as long as whoever has started it lives."""
NEVER_MET = 5.0
"""Seconds that it waits at most once that one is dead: it has nothing to tell."""
END_GRACE = 5.0
CLOSE_GRACE = 2.0
"""Seconds for jobs when an allocation ends: a batch system may kill everything five seconds after its first signal."""
VERDICT_DELAY = 1.0
"""Seconds between an end of a job that may be due to the end of the allocation, and its being told as such or not."""
MOST_SIGNALS_OF_ALLOCATION = 3
MANY_SIGNALS = 200
"""Fewer than the wakeup has room for."""
PAUSE = 0.02
"""Seconds between two messages that nobody is in a hurry to get."""
STARTS_A_TURN = 16
"""Between two looks at messages and ended jobs, so that a long batch delays neither."""


class Agent:
    def __init__(
        self,
        run_dir: Path,
        name: str,
        linger: float,
        parent: int = 0,
        *,
        in_allocation: bool = False,
        pretend: bool = False,
        open_files: int = 0,
    ) -> None:
        """`in_allocation`: the batch system ends this agent with its allocation. `open_files`: the soft limit of open
        files that jobs get; 0: the limit of this process."""
        self._linger = linger
        self._ledger = Ledger(str(run_dir / f"agent-{name}.ledger"))
        if self._ledger.unreadable_lines:
            say(f"{self._ledger.unreadable_lines} lines of {self._ledger.path} cannot be read and are passed over")
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
            self._signalled.fileno(),
            in_allocation=self._in_allocation,
            pretend=pretend,
            open_files=open_files,
        )
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        hello = protocol.Hello(
            name, host_name(), os.getpid(), usable_cpus(), __version__, cpus_of_cores(), gpus, protocol.PROTOCOL
        )
        self._poller = Poller()
        self._fence = Fence(self._cut_off, self._may_start_until)
        self._connection = Connection(run_dir, hello, self._poller, say, self._fence)
        self._signals = 0
        self._exiting = False
        self._is_lost = False
        self._was_met = False
        self._parent = parent
        """The manager that has started this agent, where that is its parent."""
        self._alone_since = time.monotonic()
        self._told_at = 0.0
        self._trouble = ""

    def run(self) -> None:
        self._watch_signals()
        more = False
        while not self._exiting or self._host.busy or self._knows_more_than_its_disk():
            # At least a millisecond: a deadline within less than that is met a little late, not in a storm of turns.
            ready = self._poller.poll(0 if more else math.ceil(self._patience() * 1000))
            if self._wakeup.fileno() in ready:
                self._take_signals()
            if self._host.cut_off:
                self._lose_all()
            for message in self._connection.receive(ready):
                self._handle(message)
                if self._host.cut_off:
                    self._lose_all()  # before anything is started that the manager sends from here on
            self._host.sync_ledger()
            now = time.monotonic()
            self._host.due(now)
            # After all that may let somebody in.
            more = self._host.advance(STARTS_A_TURN)
            self._tell(now)
            self._connection.keep(now)
            if not self._exiting and self._forsaken(now):
                say(f"no manager for {self._patience_alone():g} s, and no jobs: the agent ends")
                self._exit(END_GRACE, EndReason.CANCEL, "")
        self._tell(math.inf)
        if self._connection.up:
            self._connection.send(protocol.Bye())
        self._connection.close()
        self._fence.close()
        self._host.close()
        self._ledger.close()
        self._stop_watching_signals()

    def _patience(self) -> float:
        """Seconds until something is to be done without anything having happened."""
        deadlines = (
            self._connection.next_deadline(),
            self._host.next_deadline(),
            self._ledger.sync_due(),
            self._told_at + PAUSE if self._connection.up and self._ledger.reported < self._ledger.stored else None,
        )
        return max(min(at for at in deadlines if at is not None) - time.monotonic(), 0.0)

    def _take_signals(self) -> None:
        numbers = self._wakeup.recv(4096)
        for _ in range(numbers.count(signal.SIGTERM) + numbers.count(signal.SIGINT)):
            self._signals += 1
            say("told to end" if self._signals == 1 else "told to end at once")
            # The end of an allocation is no fault of the jobs. Its signal may come more than once.
            hurry = self._signals > (MOST_SIGNALS_OF_ALLOCATION if self._in_allocation else 1)
            reason = EndReason.CLOSED if self._in_allocation else EndReason.LOST
            self._exit(0.0 if hurry else CLOSE_GRACE if self._in_allocation else END_GRACE, reason, TOLD_TO_END)
        # There was no room for one more byte, perhaps, when there were so many.
        if signal.SIGCHLD in numbers or len(numbers) > MANY_SIGNALS:
            self._host.children_ended()

    def _cut_off(self) -> None:
        """The fence has fallen. In its thread: whatever ends from here on ends because of that."""
        self._host.set_cut_off(CUT_OFF)
        with contextlib.suppress(BlockingIOError):
            self._signalled.send(b"\0")

    def _may_start_until(self, moment: float) -> None:
        self._host.set_start_deadline(moment)

    def _lose_all(self) -> None:
        """Once each time that the fence falls, also when it has risen again since: what it has killed is lost."""
        if not self._is_lost:
            self._is_lost = True
            say("this node is cut off from its manager: its jobs are ended")
            self._host.lose_all()
        if not self._fence.has_fallen:
            self._host.set_cut_off("")
            self._is_lost = False

    def _end_what_was_given_up(self) -> None:
        """Before the fence hears that the manager is there: what it keeps stopped must not go on."""
        say("the manager has given this node up: its jobs are ended")
        before = self._host.cut_off
        self._host.set_cut_off(CUT_OFF)
        self._fence.kill_all()
        self._host.lose_all()
        self._host.set_cut_off(before)

    def _exit(self, grace: float, reason: str, message: str) -> None:
        self._exiting = True
        self._host.finish(grace, reason, message)

    def _handle(self, message: protocol.FromManager) -> None:
        if isinstance(message, protocol.Start):
            if self._exiting:
                # Left to the next agent: its report lacks them, so they are sent again.
                say(f"{len(message.launches)} jobs came too late for this agent")
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
            self._fence.known_at(message.at)
        elif isinstance(message, protocol.Ack):
            self._ledger.acknowledge(message.number)
        elif isinstance(message, protocol.Welcome):
            self._report(message)
        elif isinstance(message, protocol.Identify):
            # Once, however often it was asked meanwhile: what a manager sends after the first of several reports would
            # be missing from the others, and be sent again.
            if self._connection.up:
                self._connection.say_hello()
        elif isinstance(message, protocol.Exit):
            say("the manager says: end")
            self._exit(message.grace, message.reason, "")

    def _report(self, welcome: protocol.Welcome) -> None:
        """Tell a manager everything that it does not know for sure."""
        self._fence.set(welcome.instance, welcome.fence)
        if welcome.given_up:
            self._end_what_was_given_up()
        self._ledger.manager_has_seen(welcome.seen)
        self._ledger.acknowledge(welcome.ack)
        records, live = self._host.report()
        self._connection.send(protocol.Report([protocol.record(number, body) for number, body in records], live))
        self._connection.welcomed()

    def _tell(self, now: float) -> None:
        """What has happened; without a manager, the ledger keeps it for the next one. While no core waits for work,
        what happens within a few milliseconds goes into one message."""
        if not self._connection.up or (self._host.records_can_wait and now < self._told_at + PAUSE):
            self._ledger.flush()
        elif records := self._host.take_records():
            self._told_at = now
            # How a run ended tells when it started, too.
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
        if self._host.start_problem != self._trouble:
            self._trouble = self._host.start_problem
            say(self._trouble or "the ledger can be written again")

    def _knows_more_than_its_disk(self) -> bool:
        """Records wait for room, and would go with this process. Whoever tells it twice to end wants it so."""
        return self._ledger.stored < self._ledger.last and self._signals < 2

    def _forsaken(self, now: float) -> bool:
        if self._connection.up or self._host.busy:
            self._alone_since = now
            self._was_met = self._was_met or self._connection.up
            return False
        return now - self._alone_since >= self._patience_alone()

    def _patience_alone(self) -> float:
        if self._was_met:
            return self._linger
        # The manager that has started this agent may take a while to notice it, unless it is dead.
        if self._parent in (0, os.getppid()):
            # Its contact file was there before: the run is over, or this node's file system takes a minute to see it.
            return FIRST_MEETING if self._connection.is_run_over else max(self._linger, FIRST_MEETING)
        # It may have loaded so slowly that another manager, with an agent of its own, has ended the run since.
        return 0.0 if self._connection.is_run_over else min(self._linger, NEVER_MET)

    def _watch_signals(self) -> None:
        """Signals become bytes on a socket, so that the loop can wait for them and for messages at once."""
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        self._poller.register(self._wakeup.fileno())
        # SIGHUP is caught and not ignored: jobs would inherit that it is ignored.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)

    def _stop_watching_signals(self) -> None:
        """All is done; a late SIGTERM meets a handler that does nothing."""
        signal.set_wakeup_fd(-1)
        self._wakeup.close()
        self._signalled.close()


def _host(
    ledger: Ledger,
    name: str,
    files: str,
    output: str,
    wakeup: int,
    *,
    in_allocation: bool,
    pretend: bool,
    open_files: int,
) -> JobHost:
    verdict_delay = VERDICT_DELAY if in_allocation else 0.0
    if pretend:
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
    )


def _lane_runner(ledger: Ledger, wakeup: int, open_files: int) -> LaneRunner:
    """The fastest one that there is: the relay in C, where it could be compiled."""
    try:
        from qcg.pilotjob.agent.relay_runner import RelayLaneRunner

        return RelayLaneRunner(ledger, wakeup=wakeup, pause=PAUSE, open_files=open_files)
    except ImportError:
        return HostLaneRunner()
    except OSError as error:
        say(f"jobs are started without the relay, because it cannot start a thread: {error.strerror}")
        return HostLaneRunner()
