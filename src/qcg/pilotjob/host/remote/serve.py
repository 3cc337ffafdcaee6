"""The sub-command `remote-serve`: answers any number of requests on one channel, and pushes new records.

It has no state that a reconnected channel would miss: records come from the ledgers, and jobs belong to the supervisor.
It ends with its channel, with the silence of the manager, or when another channel of the run has replaced it.

When the run directory is removed while jobs run, only the channel can still report how they end: it has the ledger
open, as the supervisor has. So it stays until the supervisor is gone.
"""

import contextlib
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from qcg.pilotjob.host.remote.backends import read_queue
from qcg.pilotjob.host.remote.claims import read_epoch
from qcg.pilotjob.host.remote.commands import Commands
from qcg.pilotjob.host.remote.errors import CommandError, os_error
from qcg.pilotjob.host.remote.frames import Frame, FrameReader, marker_of, reply_frame
from qcg.pilotjob.host.remote.layout import BATCH, Layout
from qcg.pilotjob.host.remote.ledger_view import Numbered, to_json
from qcg.pilotjob.host.remote.supervisor_client import SupervisorClient

if TYPE_CHECKING:
    from qcg.pilotjob.host.remote.batch_worker import BatchWorker

SILENCE = 30.0
"""Seconds without a request, of which heartbeats are one, after which the manager or the connection is gone."""
TICK = 1.0
"""Seconds between two checks for changes that no supervisor of this host announces."""
SEND_INTERVAL = 0.01
"""Seconds between two messages with records."""
_PART = 1 << 18


class Channel:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._commands = Commands(layout, sends_records=True, before_start=self._follow_supervisor)
        self._supervisor = SupervisorClient(layout)
        self._watch: Optional[socket.socket] = None
        self._batch: "Optional[BatchWorker]" = None
        self._reader = FrameReader()
        self._marker = ""
        self._epoch = 0
        self._output = bytearray()
        self._reports = False
        """Whether the manager has got a full report, after which it receives new records only."""
        self._has_new_records = False
        self._sent_at = 0.0
        now = time.monotonic()
        self._heard_at = now
        self._next_tick = now + TICK
        os.set_blocking(0, False)
        os.set_blocking(1, False)

    def run(self) -> None:
        """Raises CommandError for input that is no request."""
        while True:
            poller = select.poll()
            poller.register(0, select.POLLIN)
            poller.register(1, select.POLLOUT if self._output else 0)
            if self._watch is not None:
                poller.register(self._watch.fileno(), select.POLLIN)
            if self._batch is not None:
                poller.register(self._batch.fileno(), select.POLLIN)
            ready = dict(poller.poll(self._timeout()))
            if ready.get(1, 0) & (select.POLLERR | select.POLLHUP):
                return
            if self._watch is not None and self._watch.fileno() in ready:
                self._read_supervisor_wakeups()
            if self._batch is not None and self._batch.fileno() in ready:
                self._read_batch_worker(self._batch)
            if 0 in ready:
                data = os.read(0, _PART)
                if not data:
                    return
                self._heard_at = time.monotonic()
                for frame in self._reader.feed(data):
                    self._answer(frame)
            now = time.monotonic()
            if now >= self._next_tick and not self._check(now):
                return
            if self._has_new_records and now >= self._sent_at + SEND_INTERVAL:
                self._send_new_records(now)
            if self._output:
                self._write()
            if now >= self._heard_at + SILENCE:
                return

    def _timeout(self) -> float:
        """Milliseconds until the next deadline."""
        deadline = min(self._next_tick, self._heard_at + SILENCE)
        if self._has_new_records:
            deadline = min(deadline, self._sent_at + SEND_INTERVAL)
        return max(deadline - time.monotonic(), 0.0) * 1000 + 1

    def _answer(self, frame: Frame) -> None:
        if not self._marker:
            self._marker = marker_of(frame.head)
        reply, payload = self._commands.answer(frame)
        do = frame.head.get("do")
        if reply["ok"] and do == "remote-init":
            self._epoch = reply["epoch"]
            self._start_batch_worker()
        self._send(reply, payload)
        if reply["ok"] and do == "jobs-poll" and frame.head.get("full"):
            self._reports = True
        if do in ("jobs-submit", "jobs-poll", "jobs-kill") and self._watch is None:
            self._connect()

    def _follow_supervisor(self) -> None:
        """Start the supervisor and open its ledger, before a job can remove both. Raises CommandError."""
        if self._watch is None:
            self._supervisor.ensure()
            self._connect()
            self._send_new_records(time.monotonic())

    # New records and messages

    def _check(self, now: float) -> bool:
        """Read all ledgers, and check the supervisor. False when another channel has replaced this one.

        Raises CommandError when the run directory was removed and nobody writes to its ledger any more."""
        self._next_tick = now + TICK
        if not self._reports:
            return True
        if read_epoch(self._layout) > self._epoch:
            return False
        self._send_records(self._commands.view.read())
        # After the ledger was read to its end: a supervisor that is gone because its jobs are over is not missed.
        if self._watch is None:
            self._look_after_supervisor()
        return True

    def _look_after_supervisor(self) -> None:
        if not os.path.isdir(self._layout.service):
            if not self._output:
                raise CommandError("The run directory %s was removed on this host." % self._layout.run_dir)
        elif self._supervisor.is_running():
            self._connect()
        elif self._commands.view.is_unsupervised():
            # It was killed, or the host was booted. Another one kills the remaining processes of its jobs, and records
            # the ends.
            try:
                self._supervisor.ensure()
                self._notice("The supervisor on %s was gone and was replaced." % self._layout.host)
            except CommandError as error:
                self._notice(str(error))
            self._connect()

    def _connect(self) -> None:
        """Have the supervisor announce new records, if there is one."""
        self._watch = self._supervisor.watch()
        self._has_new_records = self._watch is not None

    def _read_supervisor_wakeups(self) -> None:
        assert self._watch is not None
        data = b""
        with contextlib.suppress(OSError):
            data = self._watch.recv(4096)
        if not data:
            self._watch.close()
            self._watch = None
        self._has_new_records = True

    def _start_batch_worker(self) -> None:
        if self._batch is None and read_queue(self._layout) is not None:
            from qcg.pilotjob.host.remote.batch_jobs import BatchJobs
            from qcg.pilotjob.host.remote.batch_worker import BatchWorker

            self._batch = BatchWorker(BatchJobs(self._layout))
            self._commands.use_batch(self._batch)
        if self._batch is not None:
            self._batch.set_epoch(self._epoch)

    def _read_batch_worker(self, worker: "BatchWorker") -> None:
        for text in worker.take_notices():
            self._notice(text)
        if self._reports:
            self._send_records({BATCH: self._commands.view.read_one(BATCH)})

    def _send_new_records(self, now: float) -> None:
        """Send the records of the supervisor of this host, and messages of jobs."""
        self._has_new_records = False
        if self._reports:
            self._sent_at = now
            self._send_records({self._layout.host: self._commands.view.read_one(self._layout.host)})

    def _send_records(self, new: Dict[str, List[Numbered]]) -> None:
        """Send records, by ledger, and new messages before them: a message arrives before the end of its job.

        The caller has read the records already, so messages of jobs that end in them are stored by now."""
        for number, id, at, text in self._commands.messages.take():
            self._send({"event": "message", "id": id, "text": text, "time": at, "number": number})
        for name, records in new.items():
            if records:
                self._send({"event": "records", "ledger": name, "records": to_json(records)})

    # Output

    def _notice(self, text: str) -> None:
        self._send({"event": "notice", "text": text})

    def _send(self, head: Dict[str, Any], payload: bytes = b"") -> None:
        self._output += reply_frame(self._marker, head, payload)
        self._write()

    def _write(self) -> None:
        """Write as much as the reader takes; the loop writes the rest."""
        try:
            while self._output:
                del self._output[: os.write(1, self._output)]
        except BlockingIOError:
            pass


def main(run: str) -> int:
    try:
        Channel(Layout(run)).run()
    except CommandError as error:
        sys.stderr.write("%s\n" % error)
        return 2
    except BrokenPipeError:
        return 1
    except OSError as error:
        sys.stderr.write("%s\n" % os_error("The channel ends", error))
        return 2
    return 0
