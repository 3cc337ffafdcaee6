"""Runs one attempt in a batch job, on a compute node. The batch script calls it.

It starts the attempt at most once, whatever the batch system does: the file `job.start`, made with O_EXCL, is the claim
of the start, and the ledger of this one attempt. Everything that happens is appended to `job.status`.
"""

import contextlib
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.host.jobhost import JobHost
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.process_tree import boot_id, read_process
from qcg.pilotjob.host.records import Ended, EndReason, Launch, Started
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.batch_script import AttemptFile, read_attempt

START = "job.start"
CHANGES = "changes"
"""Name of the directory of service files in which each attempt whose status has changed has an empty file."""
GPUS = "CUDA_VISIBLE_DEVICES"
VERDICT_DELAY = 0.3
"""Seconds to wait for a signal to this process after a job has failed: a batch system that ends a batch job signals all
its processes, and the job may be the first to end."""
PATIENCE = 60.0
"""Seconds for which a full disk may delay the record of an end."""

_PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(directory: str) -> int:
    """Run the attempt in this directory. Returns the exit code for the batch system."""
    try:
        attempt = read_attempt(directory)
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.stderr.write("qcg-pm: the attempt in %s cannot be read: %s\n" % (directory, error))
        return 1
    try:
        descriptor = os.open("%s/%s" % (directory, START), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _started_before(directory, attempt)
    except OSError as error:
        sys.stderr.write("qcg-pm: %s/%s cannot be made: %s\n" % (directory, START, error.strerror))
        return 1
    os.close(descriptor)
    return _JobRunner(directory, attempt).run()


def _started_before(directory: str, attempt: AttemptFile) -> int:
    """This attempt was started by an earlier batch job, or by this one before it was queued again."""
    status = status_file.read(directory) or {}
    own = os.environ.get(attempt.id_variable, "")
    text = "%s started the batch job a second time, and the attempt is not run twice." % attempt.label
    sys.stderr.write("qcg-pm: %s\n" % text)
    if own and status_file.job_id(status) == own and "ENDED" not in status:
        # Its processes were killed before it was queued again.
        ended = Ended(attempt.launch.id, time.time(), -1, EndReason.LOST, text, 0, 0.0)
        _append(directory, attempt, status_file.end_lines(ended), PATIENCE)
    return 0


class _JobRunner:
    def __init__(self, directory: str, attempt: AttemptFile) -> None:
        self._directory = directory
        self._attempt = attempt
        self._signals: Set[int] = set()
        self._ended: Optional[Ended] = None
        self._reader = self._watch_signals()
        ledger = Ledger("%s/%s" % (directory, START))
        files = attempt.service + "/files"
        self._host = JobHost(ledger, host_name(), files, attempt.grace, _log, VERDICT_DELAY)

    def run(self) -> int:
        attempt = self._attempt
        lines: List[Tuple[str, object]] = [("HOST", host_name()), ("BOOT", boot_id())]
        if attempt.id_variable in os.environ:
            lines.insert(0, ("STARTED_JOB_ID", os.environ[attempt.id_variable]))
            lines.insert(0, ("JOB_ID", os.environ[attempt.id_variable]))
        _append(self._directory, attempt, lines)
        self._host.start([_as_granted(attempt.launch)])
        while True:
            self._host.turn(time.monotonic())
            self._record()
            if self._ended is not None and not self._host.busy:
                break
            self._wait()
        self._host.close()
        code = self._ended.exit_code
        if self._ended.reason == EndReason.EXIT:
            return code if code >= 0 else 128 - code
        return 1

    def _watch_signals(self) -> int:
        reader, writer = os.pipe()
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer)
        for number in (signal.SIGCHLD,) + _ENDING + _PASSED_ON:
            signal.signal(number, self._note_signal)
        return reader

    def _note_signal(self, number: int, frame: object) -> None:
        self._signals.add(number)

    def _wait(self) -> None:
        deadline = self._host.next_deadline()
        timeout = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if not self._signals:
            select.select([self._reader], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        signals, self._signals = self._signals, set()
        # First the end: a job that has ended by the same signal has not failed by itself.
        if signals.intersection(_ENDING):
            self._end()
        for number in signals.intersection(_PASSED_ON):
            self._host.signal([self._attempt.launch.id], number)
        if signal.SIGCHLD in signals:
            self._host.children_ended()

    def _end(self) -> None:
        reason, message = end_ordered(status_file.read(self._directory) or {})
        if not reason:
            reason, message = EndReason.LOST, "%s ended the batch job." % self._attempt.label
        self._host.finish(self._attempt.grace, reason, message)

    def _record(self) -> None:
        for _, body in self._host.take_records():
            if isinstance(body, Started):
                lines: List[Tuple[str, object]] = [("PID", body.pid), ("STARTED", status_file.timestamp(body.at))]
                process = read_process(body.pid)
                if process is not None:
                    lines.insert(1, ("PROCESS_START", process.start_ticks))
                _append(self._directory, self._attempt, lines)
            else:
                reason, message = end_ordered(status_file.read(self._directory) or {})
                if reason and body.reason == EndReason.EXIT and body.exit_code:
                    # The batch system signals all processes, so the program may end before this process does it.
                    body = body._replace(reason=reason, message=message)
                self._ended = body
                _append(self._directory, self._attempt, status_file.end_lines(body), PATIENCE)


def _as_granted(launch: Launch) -> Launch:
    """The launch with the cores and GPUs that the batch system has chosen. The manager knows only their numbers."""
    env = dict(launch.env)
    if env.get(GPUS) and os.environ.get(GPUS):
        env[GPUS] = os.environ[GPUS]
    return launch._replace(cores=None, env=env)


def end_ordered(status: Dict[str, Any]) -> Tuple[str, str]:
    """Reason and message of the order to end the job, from its status file; empty without one."""
    return str(status.get("KILL", "")), str(status.get("KILL_MESSAGE", ""))


def has_started(directory: str) -> bool:
    """Whether the runner has claimed the start of the attempt in this directory."""
    return os.path.lexists("%s/%s" % (directory, START))


def _append(directory: str, attempt: AttemptFile, lines: List[Tuple[str, object]], patience: float = 0.0) -> None:
    """Append lines to the status file, for which a full disk may be waited `patience` seconds."""
    give_up_at = time.monotonic() + patience
    while True:
        try:
            status_file.append(directory, lines)
            break
        except OSError as error:
            _log("The status file in %s cannot be written: %s." % (directory, error.strerror))
            if time.monotonic() >= give_up_at:
                return
            time.sleep(1.0)
    changed = "%s/%s/%s" % (attempt.service, CHANGES, attempt.launch.id)
    # Without it the change is found with the next poll.
    with contextlib.suppress(OSError):
        os.close(os.open(changed, os.O_WRONLY | os.O_CREAT, 0o600))


def _log(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write("qcg-pm: %s\n" % line)
        sys.stderr.flush()
