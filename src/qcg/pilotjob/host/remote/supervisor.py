"""The supervisor: the process that starts, watches and ends the jobs of a run on one host.

It lives as long as there are such jobs, in a session of its own, and takes requests over a Unix socket in the run
directory. Channels and commands come and go; the ledger has everything that they need to know.
"""

import contextlib
import errno
import fcntl
import gc
import hashlib
import math
import os
import select
import signal
import socket
import sys
import time
from shlex import quote
from typing import Any, Dict, List, Optional, Set

from qcg.pilotjob.host.jobhost import END_GRACE, JobHost
from qcg.pilotjob.host.ledger import LedgerError
from qcg.pilotjob.host.process_tree import boot_id
from qcg.pilotjob.host.records import Ended, EndReason, Launch
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.attempts import Attempt, AttemptLedger, Attempts
from qcg.pilotjob.host.remote.claims import Claims, check_epoch, locked, remove_claims
from qcg.pilotjob.host.remote.errors import CommandError, os_error
from qcg.pilotjob.host.remote.files import lock
from qcg.pilotjob.host.remote.frames import Frame, FrameReader, request_frame
from qcg.pilotjob.host.remote.launches import UnreadableLaunch, read_launch
from qcg.pilotjob.host.remote.layout import LEDGER_SUFFIX, Layout, read_text, remove
from qcg.pilotjob.host.remote.ledger_view import LedgerView, read_acked
from qcg.pilotjob.host.remote.notifier import notify
from qcg.pilotjob.host.remote.orders import Orders
from qcg.pilotjob.host.remote.supervisor_client import LOCK_SUFFIX, READY, RUNNING, SOCKET_SUFFIX, far_command
from qcg.pilotjob.host.safe_open import open_own

LINGER = 2.0
"""Seconds that a supervisor stays after its last job."""
TOLD_TO_END = "The supervisor on this host was told to end, and ended this job."
NOT_STARTED = "The supervisor on this host was killed before it started this job."
BOOTED = "The host was booted before the result of this job was recorded; the job may have run."
NOT_RECORDED = "The supervisor on this host was killed before it recorded the result of this job."
VERDICT_DELAY = 0.25
"""Seconds to wait after the end of a job by a signal: at a shutdown of the host this supervisor gets one, too."""
TICK = 1.0
"""Seconds between two reads of the files that other login hosts write."""
NUMBERS_LOST_AT_MOST = 100000
"""More records than a host can make between two syncs of its ledger. A crash of the machine loses no more numbers."""
STARTS_PER_TURN = 16
WAKE_INTERVAL = 0.02
"""Seconds for which records are collected before channels are woken up, while no core waits for work."""
_PART = 1 << 18


class AttemptSetup:
    """Sets up the directory of each attempt right before its start."""

    def __init__(self, ledger: AttemptLedger, attempts: Attempts) -> None:
        self._ledger = ledger
        self._attempts = attempts
        self._last = ""

    def prepare(self, launch: Launch) -> Launch:
        """The launch as it is started. Raises Unstartable."""
        attempt = self._ledger.attempts.get(launch.id, Attempt("", 0.0))
        launch = self._attempts.complete(launch, attempt)
        if launch.id != self._last:  # one that had to wait for capacity has its directory
            self._attempts.set_up(launch, attempt)
            self._last = launch.id
        return launch


class Supervisor:
    def __init__(self, layout: Layout) -> None:
        """The caller holds the lock of this host."""
        self._layout = layout
        before = LedgerView(layout.of_host(LEDGER_SUFFIX))
        before.read()
        self._ledger = AttemptLedger(layout.of_host(LEDGER_SUFFIX), layout, say)
        if before.boot not in ("", boot_id()):
            # The crash of the machine may have taken records from the ledger that the manager has seen.
            self._ledger.manager_has_seen(self._ledger.last + NUMBERS_LOST_AT_MOST)
        self._acked = read_acked(layout, layout.host)
        self._ledger.acknowledge(self._acked)
        instance = (read_text(layout.instance) or "").strip()
        attempts = Attempts(layout, instance, " ".join(map(quote, far_command())))
        self._claims = Claims(layout, layout.host)
        self._record_unstarted()
        setup = AttemptSetup(self._ledger, attempts)
        self._host = JobHost(
            self._ledger,
            layout.host,
            layout.files,
            log=say,
            verdict_delay=VERDICT_DELAY,
            kind="supervisor on",
            prepare=setup.prepare,
        )
        self._orders = Orders(layout, layout.host)
        self._wakeup, self._signalled = socket.socketpair()
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        self._listener = _listen(layout)
        self._poller = select.poll()
        self._connections: Dict[int, _Connection] = {}
        self._watchers: Set[int] = set()
        self._idle_since = time.monotonic()
        self._linger = LINGER
        self._next_tick = 0.0
        self._woke_at = 0.0
        self._ending = False

    def run(self) -> None:
        self._watch_signals()
        self._poller.register(self._listener.fileno(), select.POLLIN)
        more = False
        while True:
            for descriptor, _ in self._poller.poll(0 if more else self._timeout()):
                if descriptor == self._wakeup.fileno():
                    self._handle_signals()
                elif descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._receive(descriptor)
            now = time.monotonic()
            if now >= self._next_tick:
                self._tick(now)
            more = self._host.turn(now, STARTS_PER_TURN)
            self._publish(now)
            self._host.sync_ledger()  # last: a busy disk takes its time, and records that are published need none of it
            if self._host.busy or self._ledger.stored < self._ledger.last:
                self._idle_since = now
            elif self._ending or now >= self._idle_since + self._linger:
                break
        self._close()

    def _timeout(self) -> int:
        """Milliseconds until the next deadline, rounded up."""
        now = time.monotonic()
        times = [self._host.next_deadline(), self._ledger.sync_due(), self._next_tick]
        if self._ledger.reported < self._ledger.stored:
            times.append(self._woke_at + WAKE_INTERVAL)
        if not self._host.busy:
            times.append(self._idle_since + self._linger)
        return max(math.ceil((min(at for at in times if at is not None) - now) * 1000), 0)

    def _tick(self, now: float) -> None:
        """Read the files that others write into the run directory: acknowledgements, and orders through other hosts."""
        self._next_tick = now + TICK
        try:
            self._take_from_others()
        except (CommandError, OSError) as error:
            say("The acknowledgements and orders of other hosts cannot be read: %s" % error)

    def _take_from_others(self) -> None:
        acked = read_acked(self._layout, self._layout.host)
        if acked > self._acked:
            self._acked = acked
            self._ledger.acknowledge(acked)
        for order in self._orders.take():
            self._kill(order)

    def _publish(self, now: float) -> None:
        """Bring new records into the ledger, and wake up channels that are open."""
        if self._watchers and self._host.records_can_wait and now < self._woke_at + WAKE_INTERVAL:
            self._ledger.flush()
            return
        records = self._host.take_records()
        if not records:
            return
        self._woke_at = now
        for descriptor in list(self._watchers):
            self._connections[descriptor].wake()
        if not self._watchers:
            try:
                notify(self._layout, [body.id for _, body in records])
            except (CommandError, OSError) as error:
                say("The manager cannot be notified: %s" % error)

    def _record_unstarted(self) -> None:
        """Record attempts that an earlier supervisor claimed and of which the ledger has no start."""
        with locked(self._layout, exclusive=True):
            claims = self._claims.of_this_ledger()
        for id, claim in claims.items():
            if self._ledger.knows(id):
                continue
            status = None
            with contextlib.suppress(OSError):
                status = status_file.read(claim.directory) if claim.directory else None
            if status is not None and status.get("ATTEMPT") == id and "ENDED" in status:
                # Its end was acknowledged. The machine crashed before the claim was gone from its disk.
                remove_claims(self._layout, [id])
                continue
            reason, message = EndReason.CLOSED, NOT_STARTED
            if claim.boot != boot_id():
                # The crash of the machine may have taken the start from the ledger.
                reason, message = EndReason.LOST, BOOTED
            elif status is not None and status.keys() & {"PID", "STARTED"}:
                reason, message = EndReason.LOST, NOT_RECORDED
            self._ledger.ended(Ended(id, time.time(), -1, reason, message, 0, 0.0))

    # Requests

    def _handle(self, request: Dict[str, Any], connection: "_Connection") -> Optional[Dict[str, Any]]:
        do = request.get("do")
        if do == "watch":
            self._watchers.add(connection.descriptor)
            connection.wake()  # for records between the last read of the ledger by the channel and this request
            return None
        if do == "wake":
            for descriptor in self._watchers:
                self._connections[descriptor].wake()
            return {"ok": True}
        if do == "jobs-submit":
            return {"ok": True, "results": self._submit(request)}
        if do == "jobs-kill":
            return {"ok": True, "done": self._kill(request)}
        if do == "end":
            self._linger = 0.0
            return {"ok": True, "busy": self._host.busy}
        raise CommandError("The supervisor does not know the request %r." % do)

    def _submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Claim and accept launches, each by itself. Returns the result of each, by id."""
        results: Dict[str, Any] = {}
        accepted: List[Launch] = []
        with locked(self._layout, exclusive=False):
            check_epoch(self._layout, request, required=True)
            log = "%s/%s" % (self._layout.run_dir, self._layout.log_directory())
            for fields in request.get("launches") or ():
                error = ""
                try:
                    launch = read_launch(fields)
                    id, directory = launch.id, "%s/%s" % (log, launch.remote.directory) if launch.remote else ""
                    grant = launch.grant
                except UnreadableLaunch as unreadable:
                    id, directory, grant, error = unreadable.id, "", [], str(unreadable)
                if not id:
                    results[""] = {"error": error}
                    continue
                try:
                    is_new = not self._ledger.knows(id) and self._claims.make(id, directory, grant)
                except OSError as reason:
                    is_new = True
                    error = error or "Attempt %s cannot be claimed: %s." % (id, reason.strerror)
                if not is_new:
                    results[id] = "known"
                    continue
                self._ledger.attempts[id] = Attempt(directory, time.time())
                if error:
                    results[id] = {"error": error}
                    self._ledger.ended(Ended(id, time.time(), -1, EndReason.UNSTARTABLE, error, 0, 0.0))
                else:
                    results[id] = "accepted"
                    accepted.append(launch)
        self._host.start(accepted)
        self._ledger.flush()  # the manager looks for the records of errors as soon as it has the reply
        return results

    def _kill(self, request: Dict[str, Any]) -> List[str]:
        ids = [id for id in request.get("ids") or () if isinstance(id, str)]
        how = request.get("how", "kill")
        here = {running.id for running in self._host.running()}
        done = [id for id in ids if id in here]
        if how == "kill":
            reason, message = request.get("reason") or EndReason.CANCEL, request.get("message") or ""
            grace = request.get("grace")
            self._host.kill(done, str(reason), str(message), grace if isinstance(grace, (int, float)) else None)
        elif how == "retract":
            self._host.retract(done)
        elif how == "signal":
            number = request.get("signal")
            if not isinstance(number, int) or not 0 < number < signal.NSIG:
                raise CommandError("%r is not the number of a signal." % number)
            self._host.signal(done, number)
        else:
            raise CommandError("%r is not a way to end jobs: it is kill, retract or signal." % how)
        return done

    # Connections and signals

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # it is gone again
        except OSError as error:
            say("A connection cannot be accepted: %s" % error)
            return
        connection = _Connection(client)
        self._connections[connection.descriptor] = connection
        self._poller.register(connection.descriptor, select.POLLIN)

    def _receive(self, descriptor: int) -> None:
        connection = self._connections[descriptor]
        try:
            frames = connection.receive()
        except (CommandError, OSError):
            frames = None
        if frames is None:
            self._drop(connection)
            return
        for request, _ in frames:
            try:
                reply = self._handle(request, connection)
            except CommandError as error:
                reply = {"ok": False, "error": str(error), "code": error.code}
            except OSError as error:
                failed = os_error("The request %s failed" % request.get("do"), error)
                reply = {"ok": False, "error": str(failed), "code": failed.code}
            if reply is not None:
                connection.reply(reply)

    def _drop(self, connection: "_Connection") -> None:
        self._poller.unregister(connection.descriptor)
        self._watchers.discard(connection.descriptor)
        del self._connections[connection.descriptor]
        connection.close()

    def _watch_signals(self) -> None:
        signal.set_wakeup_fd(self._signalled.fileno(), **_NO_WARNING)
        self._poller.register(self._wakeup.fileno(), select.POLLIN)
        # SIGHUP gets a handler and is not ignored, because jobs would inherit an ignored signal.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)

    def _handle_signals(self) -> None:
        numbers = self._wakeup.recv(4096)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            say("told to end")
            self._host.finish(0.0 if self._ending else END_GRACE, EndReason.LOST, TOLD_TO_END)
            self._ending = True
        self._host.children_ended()

    def _close(self) -> None:
        # First: a command that finds no socket starts another supervisor, and repeats a request without a reply.
        remove(self._layout.of_host(SOCKET_SUFFIX))
        self._listener.close()
        for connection in self._connections.values():
            connection.close()
        self._host.close()
        self._ledger.close()


class _Connection:
    def __init__(self, client: socket.socket) -> None:
        client.setblocking(True)
        self._socket = client
        self._reader = FrameReader()
        self.descriptor = client.fileno()

    def receive(self) -> Optional[List[Frame]]:
        """The requests that have arrived; None when the peer is gone."""
        data = self._socket.recv(_PART)
        return self._reader.feed(data) if data else None

    def reply(self, reply: Dict[str, Any]) -> None:
        """Peers wait for their reply, so this does not wait for long. One that is gone is dropped with its end."""
        self._socket.settimeout(5.0)
        with contextlib.suppress(OSError):
            self._socket.sendall(request_frame(reply))

    def wake(self) -> None:
        """A peer that has not read the last bytes will read the ledger anyway."""
        with contextlib.suppress(OSError):
            self._socket.send(b"\n", socket.MSG_DONTWAIT)

    def close(self) -> None:
        self._socket.close()


def say(line: str) -> None:
    """Write a line to the log of this supervisor."""
    with contextlib.suppress(OSError):
        sys.stderr.write("%s %s\n" % (status_file.timestamp(time.time()), line))
        sys.stderr.flush()


def main(run: str) -> int:
    """The sub-command `supervise`: answers on stdout once that it accepts connections, and leaves stdout then."""
    try:
        layout = Layout(run)
        layout.check()
        if _take_lock(layout) < 0:
            os.write(1, RUNNING)
            return 0
        supervisor = Supervisor(layout)
    except (CommandError, LedgerError, OSError) as error:
        say(str(error))
        os.write(1, ("%s\n" % error).encode("utf-8", "replace"))
        return 1
    with contextlib.suppress(OSError):
        os.write(1, READY)
    os.dup2(2, 1)
    # Records and launches are kept in thousands and form no cycles.
    gc.set_threshold(100000, 50, 1000)
    supervisor.run()
    return 0


def _take_lock(layout: Layout) -> int:
    """The lock of this host, held as long as this process lives; -1 when another supervisor has it."""
    descriptor = open_own(layout.of_host(LOCK_SUFFIX), os.O_RDWR | os.O_CREAT)
    try:
        if lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return descriptor
    except BlockingIOError:
        os.close(descriptor)
        return -1
    os.close(descriptor)
    return _take_name(layout)


def _take_name(layout: Layout) -> int:
    """Where the file system has no locks: a name that only one process of this host can have, as a descriptor; -1 when
    another supervisor has it."""
    place = "%s/%s" % (os.path.realpath(layout.service), layout.host)
    name = "qcg-pm-%d-%s" % (os.geteuid(), hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest())
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind("\0" + name)
    except OSError as error:
        holder.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return -1
    return holder.detach()


def _listen(layout: Layout) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    remove(layout.of_host(SOCKET_SUFFIX))
    os.chdir(layout.service)
    umask = os.umask(0o077)
    try:
        listener.bind(layout.host + SOCKET_SUFFIX)
    finally:
        os.umask(umask)
    listener.listen(64)
    listener.setblocking(False)
    return listener


_NO_WARNING: Dict[str, Any] = {"warn_on_full_buffer": False} if sys.version_info >= (3, 7) else {}
