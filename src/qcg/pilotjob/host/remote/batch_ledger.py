"""The ledger of batch jobs, which each command opens under a lock, and the status files of open attempts."""

import contextlib
import fcntl
import os
import time
from calendar import timegm
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from qcg.pilotjob.host.ledger import Ledger, LedgerError, OpenStart
from qcg.pilotjob.host.records import Ended, EndReason, RecordBody
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.claims import Claim, Claims, check_epoch, claimed_ids, read_claim, remove_claims
from qcg.pilotjob.host.remote.errors import CommandError, os_error
from qcg.pilotjob.host.remote.files import lock
from qcg.pilotjob.host.remote.layout import BATCH, LEDGER_SUFFIX, Layout
from qcg.pilotjob.host.remote.ledger_view import read_acked
from qcg.pilotjob.host.safe_open import open_own

WAIT_FOR_OTHERS = 30.0
"""Seconds to wait for another command that uses the ledger, or that submits jobs of the same run."""

Status = Dict[str, Any]


class OpenAttempt(NamedTuple):
    """An attempt without an end in the ledger."""

    id: str
    directory: str
    status: Status
    """The values of its status file."""
    batch_name: str
    """The unique name of its batch job in the queue; empty when the claim of the attempt was removed."""
    is_removed: bool
    """Whether its status file was removed, so that its result cannot be known."""

    @property
    def job_id(self) -> str:
        """The id of its batch job; empty when it is not known."""
        return status_file.job_id(self.status)


class BatchLedger(Ledger):
    """The ledger of batch jobs, with the status files of its attempts. To be opened with `BatchLedgers.open`."""

    def __init__(
        self, layout: Layout, claims: Dict[str, Claim], orders: Dict[str, Status], log: Callable[[str], None]
    ) -> None:
        """`claims` of attempts, and `orders` to end attempts whose status files could not be written, by id."""
        self._layout = layout
        self._claims = claims
        self._orders = orders
        self._log = log
        super().__init__(layout.of_host(LEDGER_SUFFIX, BATCH))

    def take_acks(self) -> None:
        """Forget the records that the manager has acknowledged."""
        acked = read_acked(self._layout, BATCH)
        self.manager_has_seen(acked)
        self.acknowledge(acked)

    def abandon(self) -> None:
        """Close the file without writing to it."""
        os.close(self._fd)

    def sync_now(self) -> None:
        """Bring all records to the disk, before a manager can see them."""
        self._next_sync = 0.0
        self.sync()

    def open_attempts(self, ids: Optional[Iterable[str]] = None) -> List[OpenAttempt]:
        """Attempts without an end: all of them, or the attempts `ids`."""
        found = []
        for id in list(self.open) if ids is None else [id for id in ids if id in self.open]:
            directory, name = self._claimed(id)
            try:
                status = status_file.read(directory) if directory else None
                if status is None and directory and not _is_gone(directory, self._layout.run_dir):
                    status = status_file.read(directory)
            except OSError as error:
                self._log("The status file in %s cannot be read: %s." % (directory, error.strerror))
                continue
            known = dict(self._orders.get(id, {}), **(status or {}))
            found.append(OpenAttempt(id, directory, known, name, status is None))
        return found

    def _claimed(self, id: str) -> Tuple[str, str]:
        """The directory of an attempt and the name of its batch job; both empty when its claim was removed."""
        claim = self._claims.get(id)
        if claim is None:
            claim = read_claim(self._layout, id)
            if claim is None and id in claimed_ids(self._layout):
                claim = read_claim(self._layout, id)
            if claim is None:
                return "", ""
            self._claims[id] = claim
        return claim.directory, claim.batch_name

    def order_end(self, attempt: OpenAttempt, reason: str, message: str) -> None:
        """Note that the attempt is to be ended: in its status file, or in this process when that cannot be written."""
        if "KILL" in attempt.status:
            return
        order = {"KILL": reason}
        if message:
            order["KILL_MESSAGE"] = message
        try:
            status_file.append(attempt.directory, order.items())
        except OSError as error:
            self._orders[attempt.id] = order
            text = "The order to end attempt %s cannot be written: %s (%s)."
            self._log(text % (attempt.id, error.strerror, attempt.directory))

    def ended(self, body: Ended) -> Tuple[int, RecordBody]:
        self._orders.pop(body.id, None)
        self._claims.pop(body.id, None)
        return super().ended(body)

    def record_start(self, attempt: OpenAttempt) -> None:
        """Record the start in the status file, once."""
        start = self.open[attempt.id]
        pid = _number(attempt.status.get("PID"))
        if pid and not start.pid and "STARTED" in attempt.status:
            at = parse_time(attempt.status["STARTED"])
            self.started(attempt.id, OpenStart(start.marker, pid, at, start.grant, 0, 0))

    def recorded_end(self, attempt: OpenAttempt) -> Ended:
        """The end as recorded in the status file."""
        status = attempt.status
        pid = _number(status.get("PID"))
        code = -_number(status["SIGNAL"]) if "SIGNAL" in status else _number(status.get("EXIT_CODE", "-1"))
        reason, message = str(status.get("END_REASON", EndReason.EXIT)), str(status.get("END_MESSAGE", ""))
        grant = self.open[attempt.id].grant if pid else []
        started = parse_time(status.get("STARTED", ""))
        usage = status_file.read_usage(status)
        return Ended(attempt.id, parse_time(status["ENDED"]), code, reason, message, pid, started, grant, usage)

    def end(self, attempt: OpenAttempt, reason: str, message: str) -> None:
        """Record an end that is not in the status file."""
        if attempt.id not in self.open:
            return
        pid, started = _number(attempt.status.get("PID")), parse_time(attempt.status.get("STARTED", ""))
        grant = self.open[attempt.id].grant if attempt.job_id else []
        ended = Ended(attempt.id, time.time(), -1, reason, message, pid, started, grant)
        with contextlib.suppress(OSError):
            status_file.append(attempt.directory, status_file.end_lines(ended))
        self.ended(ended)

    def remove_stray_claims(self) -> None:
        """Remove claims of commands that were killed before the ledger had the attempt: nothing was submitted, and the
        manager gives the attempt another number."""
        stray = [id for id in Claims(self._layout, BATCH).of_this_ledger() if not self.knows(id)]
        remove_claims(self._layout, stray)


class BatchLedgers:
    """Opens the ledger of batch jobs, one command at a time. Its content is kept while no other command writes."""

    def __init__(self, layout: Layout, log: Callable[[str], None]) -> None:
        self._layout = layout
        self._log = log
        self._claims: Dict[str, Claim] = {}
        """By id of the attempt."""
        self._orders: Dict[str, Status] = {}
        self._ledger: Optional[BatchLedger] = None
        self._left_as = _FileState(-1, -1, -1)
        self._epoch: Optional[int] = None
        """Number of the channel for which the ledger is opened; None: no channel."""

    def set_epoch(self, epoch: int) -> None:
        """Open the ledger for this channel only, until another one replaces it."""
        self._epoch = epoch

    def check_epoch(self) -> None:
        """Raise CommandError when another channel has replaced the one of this process."""
        if self._epoch is not None:
            check_epoch(self._layout, {"epoch": self._epoch})

    @contextlib.contextmanager
    def open(self) -> Iterator[BatchLedger]:
        """The ledger, which no other command changes meanwhile. Raises CommandError."""
        with locked(self._layout.of_host(".lock", BATCH), WAIT_FOR_OTHERS) as held:
            if held is None:
                raise CommandError(
                    "The ledger of batch jobs in %s is in use by another command." % self._layout.service
                )
            # Under the lock: a channel that was replaced while it waited must not write any more.
            self.check_epoch()
            if self._ledger is None or _file_state(self._ledger.path) != self._left_as:
                # Another command has written. Records that this one could not write have used numbers; they are found
                # again in status files.
                self.close()
                try:
                    self._ledger = BatchLedger(self._layout, self._claims, self._orders, self._log)
                except LedgerError as error:
                    raise CommandError(str(error)) from None
            ledger = self._ledger
            ledger.take_acks()
            if ledger.write_error:
                ledger.sync_now()  # there may be room by now
            try:
                yield ledger
            finally:
                ledger.sync_now()
                self._left_as = _file_state(ledger.path)

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.abandon()
            self._ledger = None


class _FileState(NamedTuple):
    device: int
    number: int
    size: int


def _file_state(path: str) -> _FileState:
    """Opens the file: a client of a network file system asks the server then, and otherwise remembers a size."""
    try:
        descriptor = open_own(path)
    except OSError:
        return _FileState(0, 0, 0)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return _FileState(status.st_dev, status.st_ino, status.st_size)


@contextlib.contextmanager
def locked(path: str, patience: float) -> Iterator[Optional[int]]:
    """Lock a file; None when another process keeps it locked for `patience` seconds. Where a file system has no locks,
    nothing is locked. The lock lasts as long as a process has the descriptor open."""
    try:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise os_error("A lock of the run cannot be opened", error) from None
    try:
        yield descriptor if _lock(descriptor, time.monotonic() + patience) else None
    finally:
        os.close(descriptor)


def _lock(descriptor: int, give_up_at: float) -> bool:
    while True:
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.02)
        except OSError as error:
            raise os_error("A lock of the run cannot be taken", error) from None


def _is_gone(directory: str, top: str) -> bool:
    """Whether a directory below `top` does not exist. A network file system may remember for a while that there was
    none; directories that are listed are read anew."""
    path = top
    for name in os.path.relpath(directory, top).split("/"):
        try:
            if name not in os.listdir(path):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return True
        path = "%s/%s" % (path, name)
    return status_file.NAME not in os.listdir(path)


def _number(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def parse_time(text: str) -> float:
    """Seconds since the epoch of a time in a status file; 0 without one."""
    whole, _, rest = text.partition(".")
    try:
        return timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + rest.rstrip("Z"))
    except ValueError:
        return 0.0
