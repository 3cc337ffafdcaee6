"""The ledger: a job host's own record, on its own disk, of the jobs that it started and how they ended.

With it, a host that was restarted refuses to start a job twice. `ledger_format` describes the file.

A record may be sent once its line is handed to the operating system, because from then on it outlives this process.
Only a crash of the machine can still take it from the ledger. Then the manager sends the number of the last record that
it has seen, and new records get higher numbers."""

import contextlib
import errno
import itertools
import os
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from qcg.pilotjob.host import ledger_format as form
from qcg.pilotjob.host.process_tree import boot_id
from qcg.pilotjob.host.records import Ended, EndReason, NodeGrant, RecordBody, Running, Started
from qcg.pilotjob.host.safe_open import open_own

COMPACT_ABOVE = 32 * 1024 * 1024
"""Bytes above which a ledger is compacted, if that makes it half as large or smaller."""
MOST_BYTES = 4 << 30
"""Size of the largest ledger that is opened: about 20 million records that no manager has acknowledged."""
SYNC_INTERVAL = 1.0
_BYTES_PER_RECORD = 200


class LedgerError(Exception):
    """The ledger cannot be opened."""


class OpenStart(NamedTuple):
    """A start without an end."""

    marker: str
    """Value of QCG_PM_STEP_ID in the environment of all its processes."""
    pid: int
    """0 when the ledger does not say whether a process was started."""
    at: float
    grant: List[NodeGrant]
    since: int
    until: int
    """Its process began between these clock ticks after boot: this tells it from a later process with the same pid."""


def _unsure(marker: str, grant: List[NodeGrant]) -> OpenStart:
    return OpenStart(marker, 0, 0.0, grant, 0, 0)


class Ledger:
    def __init__(self, path: str, compact_above: int = COMPACT_ABOVE) -> None:
        """`compact_above`: bytes above which the file is compacted. A file that others read often is kept short."""
        self.path = path
        self.write_error = ""
        """Why lines cannot be written at present, as a sentence. While it is not empty, no job may be started."""
        self.unreadable_lines = 0
        self.last = 0
        """Number of the newest record."""
        self.stored = 0
        """Number of the newest record that is in the file."""
        self.reported = 0
        """Number of the newest record that a manager may have seen."""
        self.acknowledged = 0
        """Number of the newest record that the manager's journal has."""
        self.open: Dict[str, OpenStart] = {}
        """Starts without an end, by id."""
        self._kept: Deque[Tuple[int, RecordBody]] = deque()
        """Records that are not acknowledged."""
        self._ended: Set[str] = set()
        self._stored_acknowledgement = 0
        self._lines: List[str] = []
        self._unwritten = b""
        self._unnumbered: Dict[str, Ended] = {}
        """While the file is read: ends without a number."""
        self._unsynced = False
        self._next_sync = 0.0
        self._most_bytes = self._compact_above = compact_above
        try:
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, MOST_BYTES)
            self._replay()
        except OSError as error:
            raise LedgerError("The ledger %s cannot be opened: %s." % (path, error.strerror)) from None
        except form.UnknownVersion as version:
            os.close(self._fd)
            raise LedgerError(
                "The ledger %s has version %s of its format, and this program reads versions up to %d: it was written"
                " by a later version of the program." % (path, version, form.VERSION)
            ) from None
        self.stored = self.reported = self.last
        self._lines.append(form.header_line(boot_id()))
        for body in self._unnumbered.values():
            self.ended(body)
        self._unnumbered.clear()
        self.flush()

    @property
    def descriptor(self) -> int:
        """Descriptor of the file. It changes when the file is compacted."""
        return self._fd

    def close(self) -> None:
        self._next_sync = 0.0
        self.sync()
        os.close(self._fd)

    # Records

    def starting(self, id: str, marker: str, grant: List[NodeGrant]) -> bool:
        """Write that job `id` may run from now on. False: the write failed, and the job must not be started."""
        if self.write_error:
            return False
        if not self._write_now(form.starting_line(id, marker, grant)):
            return False
        self.open[id] = _unsure(marker, grant)
        return True

    def refused(self, body: Ended) -> bool:
        """Write the end of a job that was never started. False: the write failed, and the record is dropped."""
        if self.write_error or not self._write_now(form.ended_line(self.last + 1, body)):
            return False
        self.last = self.stored = self.last + 1
        self._ended.add(body.id)
        self._kept.append((self.last, body))
        return True

    def started(self, id: str, start: OpenStart) -> Tuple[int, RecordBody]:
        body = Started(id, start.pid, start.at, start.grant)
        self.open[id] = start
        return self._record(body, form.started_line(self.last + 1, body, start.since, start.until))

    def ended(self, body: Ended) -> Tuple[int, RecordBody]:
        self.open.pop(body.id, None)
        self._ended.add(body.id)
        return self._record(body, form.ended_line(self.last + 1, body))

    def _record(self, body: RecordBody, line: str) -> Tuple[int, RecordBody]:
        self.last += 1
        self._lines.append(line)
        numbered = (self.last, body)
        self._kept.append(numbered)
        return numbered

    def knows(self, id: str) -> bool:
        """Whether job `id` was started and the manager has not acknowledged its end."""
        return id in self.open or id in self._ended

    def unacknowledged(self) -> List[Tuple[int, RecordBody]]:
        """All stored records that no manager has acknowledged; they count as reported."""
        self.reported = max(self.reported, self.stored)
        return [numbered for numbered in self._kept if numbered[0] <= self.stored]

    def unreported(self) -> List[Tuple[int, RecordBody]]:
        """The stored records since the last report; they count as reported."""
        reported, self.reported = self.reported, max(self.reported, self.stored)
        newest_first = itertools.takewhile(lambda numbered: numbered[0] > reported, reversed(self._kept))
        return [numbered for numbered in newest_first if numbered[0] <= self.stored][::-1]

    def unstored_ends(self) -> List[Running]:
        """Jobs that are over, but whose ends are not stored yet: for the manager they are still running."""
        return [
            Running(body.id, body.pid, body.started, body.grant)
            for number, body in self._kept
            if number > self.stored and isinstance(body, Ended)
        ]

    def manager_has_seen(self, number: int) -> None:
        """Give new records numbers above `number`, the last one that the manager has seen.

        A crash of this machine may have taken records from the ledger. If others got their numbers, the manager would
        take the new records for repetitions."""
        if number > self.reported:
            shift = number - self.reported
            self._lines.append(form.renumbered_line(self.reported, shift))
            self.stored = min(self.stored, self.reported)
            self._renumber(self.reported, shift)
            self.reported = number

    def acknowledge(self, number: int) -> None:
        """The manager's journal has all records up to `number`. Stored with the next `sync`."""
        kept = self._kept
        while kept and kept[0][0] <= number:
            body = kept.popleft()[1]
            if isinstance(body, Ended):
                self._ended.discard(body.id)
        self.acknowledged = max(self.acknowledged, number)

    def _renumber(self, above: int, shift: int) -> None:
        self._kept = deque((number + shift if number > above else number, body) for number, body in self._kept)
        self.last = max(self.last, above) + shift

    # The file

    def flush(self) -> bool:
        """Hand all lines to the operating system, so that they outlive this process. False: some are not written."""
        if self._lines:
            self._unwritten += ("\n" + "".join(self._lines)).encode("ascii")
            self._lines.clear()
        while self._unwritten:
            try:
                written = os.write(self._fd, self._unwritten)
            except OSError as error:
                self._set_write_error(error)
                return False
            if written < len(self._unwritten):
                # A line that was cut off is written again.
                whole = self._unwritten.rfind(b"\n", 0, written) + 1
                self._unwritten = b"\n" + self._unwritten[whole:]
            else:
                self._unwritten = b""
            self._unsynced = True
            self.write_error = ""
        self.stored = self.last
        return True

    def _write_now(self, line: str) -> bool:
        """Write a line after all others. False: it is not written, and never will be."""
        self._lines.append(line)
        if self.flush():
            return True
        # Blank lines of the same length find out when there is room.
        self._unwritten = self._unwritten[: -len(line)] + b"\n" * len(line)
        return False

    def sync_due(self) -> Optional[float]:
        """When `sync` has something to do next, in monotonic seconds."""
        if self._unsynced or self._lines or self._unwritten or self.acknowledged > self._stored_acknowledgement:
            return self._next_sync
        return None

    def sync(self, before_compaction: Callable[[], None] = lambda: None) -> None:
        """Bring lines to the disk, so that they outlive a crash of the machine; at most once a second.

        `before_compaction` is called when the file is about to be replaced by a shorter one: others must not write to
        the old one any more."""
        due = self.sync_due()
        now = time.monotonic()
        if due is None or now < due:
            return
        self._next_sync = now + SYNC_INTERVAL
        if self.acknowledged > self._stored_acknowledgement:
            self._lines.append(form.acknowledged_line(self.acknowledged))
            self._stored_acknowledgement = self.acknowledged
        if not self.flush():
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # Some special files cannot be synced, and need not be.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                self._set_write_error(error)
                return
        self._unsynced = False
        self.write_error = ""
        size = os.fstat(self._fd).st_size
        if size > self._compact_above and self._compacted_size() * 2 < size:
            before_compaction()
            self._compact()

    def _set_write_error(self, error: OSError) -> None:
        self.write_error = "The ledger %s cannot be written: %s. No job is started until it can." % (
            self.path,
            os.strerror(error.errno or 0),
        )

    def _compacted_size(self) -> int:
        return (len(self._kept) + 2 * len(self.open)) * _BYTES_PER_RECORD

    def _compact(self) -> None:
        """Replace the file by one that holds only what is still needed."""
        lines = [form.header_line(boot_id()), form.acknowledged_line(self.acknowledged)]
        for id, start in self.open.items():
            lines.append(form.starting_line(id, start.marker, start.grant))
        recorded = set()
        for number, body in self._kept:
            if isinstance(body, Started):
                recorded.add(body.id)
                open_start = self.open.get(body.id)
                ticks = (open_start.since, open_start.until) if open_start else (0, 0)
                lines.append(form.started_line(number, body, *ticks))
            else:
                lines.append(form.ended_line(number, body))
        for id, start in self.open.items():
            if start.pid and id not in recorded:
                # Number 0 is below every acknowledgement: it is remembered and never sent again.
                body = Started(id, start.pid, start.at, start.grant)
                lines.append(form.started_line(0, body, start.since, start.until))
        new_path = self.path + ".new"
        new_fd = -1
        try:
            new_fd = open_own(new_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            content = "".join(lines).encode("ascii")
            while content:
                content = content[os.write(new_fd, content) :]
            os.fsync(new_fd)
            os.rename(new_path, self.path)
        except OSError:
            # The long file is as good as the short one; try again when it has grown as much once more.
            if new_fd >= 0:
                os.close(new_fd)
                _remove(new_path)
            self._compact_above += self._most_bytes
            return
        os.close(self._fd)
        self._fd = new_fd
        self._lines.clear()
        self._unwritten = b""
        self.stored = self.last
        self._stored_acknowledgement = self.acknowledged
        self._compact_above = self._most_bytes

    # Reading

    def _replay(self) -> None:
        boot = ""
        with open(os.dup(self._fd), "rb") as file:
            for line in file:
                if line == b"\n":
                    continue
                try:
                    entry = form.read_line(line)
                    if isinstance(entry, form.Header):
                        if entry.boot_id != boot:
                            self._forget_processes()
                        boot = entry.boot_id
                    else:
                        self._apply(entry)
                except (ValueError, LookupError, TypeError):
                    self.unreadable_lines += 1
        if boot != boot_id():
            self._forget_processes()
        self._stored_acknowledgement = self.acknowledged
        self.last = max(self.last, self.acknowledged)
        self.acknowledge(self.acknowledged)

    def _apply(self, entry: Any) -> None:
        if isinstance(entry, form.Starting):
            self.open[entry.id] = _unsure(entry.marker, entry.grant)
        elif isinstance(entry, form.StartedLine):
            number, body = entry.number, entry.body
            before = self.open.get(body.id)
            marker = before.marker if before else ""
            self.open[body.id] = OpenStart(marker, body.pid, body.at, body.grant, entry.since, entry.until)
            if number:
                self._kept.append((number, body))
                self.last = max(self.last, number)
        elif isinstance(entry, form.EndedLine):
            number, ended = entry
            self.open.pop(ended.id, None)
            self._unnumbered.pop(ended.id, None)
            self._ended.add(ended.id)
            self._kept.append((number, ended))
            self.last = max(self.last, number)
        elif isinstance(entry, form.Succeeded):
            id, pid, started, at, usage = entry
            before = self.open.pop(id, None)
            self._ended.add(id)
            grant = before.grant if before else []
            self._unnumbered[id] = Ended(id, at, 0, EndReason.EXIT, "", pid, started, grant, usage)
        elif isinstance(entry, form.Acknowledged):
            self.acknowledged = max(self.acknowledged, entry.number)
        elif isinstance(entry, form.Renumbered):
            self._renumber(entry.above, entry.shift)

    def _forget_processes(self) -> None:
        """The machine was booted since: a pid from before may be that of any process."""
        self.open = {id: start._replace(since=0, until=0) for id, start in self.open.items()}


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
