"""What a host has started and how that ended, on its own disk: the memory that makes a start happen once.

One JSON array a line, only ever appended:

    ["h", boot id]                                          written when the ledger is opened
    ["b", id, marker, grant]                                about to start: from here on it may have run
    ["s", number, id, pid, at, grant, since, until]         Started, and the ticks between which the process began
    ["e", number, id, at, code, reason, message, pid, at, grant]    Ended
    ["x", id, pid, at, at]                                  started and ended well; gets its number in an Ended line
    ["a", number]                                           records up to this one are in the manager's journal
    ["n", number, shift]                                    records above this one count so many more from here on

Each write begins with a new line, because a full disk may have cut off whatever anybody wrote before: a line is whole,
or is passed over.

A record may be told once its line is handed to the operating system: what anybody has heard outlives this process. Only
a crash of the machine can take it from the ledger; then the manager says how far it has seen, and new records count on
from there.
"""

import contextlib
import errno
import functools
import itertools
import json
import os
import time
from collections import deque
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started
from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.host.tree import boot_id

Record = Union[Started, Ended]

COMPACT_ABOVE = 32 * 1024 * 1024
MOST_BYTES = 4 << 30
"""Of a ledger that is opened: room for 20 million records that no manager has acknowledged."""
SYNC_INTERVAL = 1.0
_BYTES_PER_RECORD = 200


class LedgerError(Exception):
    """The ledger cannot be opened."""


class Opened(NamedTuple):
    """A start without an end."""

    marker: str
    """Value of QCG_PM_STEP_ID in the environment of all its processes."""
    pid: int
    """0 when the ledger does not know whether it came to be."""
    at: float
    grant: List[NodeGrant]
    since: int
    until: int
    """Its process began between these clock ticks after boot: tells it from a later one with the same pid."""


def _unsure(marker: str, grant: List[NodeGrant]) -> Opened:
    return Opened(marker, 0, 0.0, grant, 0, 0)


def starting_line(id: str, marker: str, grant: List[NodeGrant]) -> str:
    return '["b",%s,%s,%s]\n' % (quoted(id), quoted(marker), _grant_text(tuple(grant)))


def _started_line(number: int, body: Started, since: int, until: int) -> str:
    grant = _grant_text(tuple(body.grant))
    return '["s",%d,%s,%d,%r,%s,%d,%d]\n' % (number, quoted(body.id), body.pid, body.at, grant, since, until)


@functools.lru_cache(maxsize=4096)
def _grant_text(grant: Tuple[NodeGrant, ...]) -> str:
    """Few different grants come again and again."""
    return json.dumps(grant, separators=(",", ":"))


def _ended_line(number: int, body: Ended) -> str:
    return '["e",%d,%s,%r,%d,%s,%s,%d,%r,%s]\n' % (
        number,
        quoted(body.id),
        body.at,
        body.exit_code,
        quoted(body.reason),
        quoted(body.message),
        body.pid,
        body.started,
        _grant_text(tuple(body.grant)),
    )


class Ledger:
    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        """Why lines cannot be written at present, as a sentence. While it is not empty, no job may be started."""
        self.unreadable_lines = 0
        self.last = 0
        """Number of the newest record."""
        self.stored = 0
        """Records up to this one are in the file."""
        self.told = 0
        """Records up to this one may have been seen by a manager."""
        self.acknowledged = 0
        self.open: Dict[str, Opened] = {}
        """Starts without an end, by id."""
        self._kept: Deque[Tuple[int, Record]] = deque()
        self._ended: Set[str] = set()
        self._stored_ack = 0
        self._lines: List[str] = []
        self._unwritten = b""
        self._ran: Dict[str, Ended] = {}
        """While the file is read: ends without a number."""
        self.before_replacing: Callable[[], None] = lambda: None
        """Called when the file is about to be replaced by a shorter one: whoever else writes to it must stop."""
        self._unsynced = False
        self._next_sync = 0.0
        self._compact_above = COMPACT_ABOVE
        try:
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, MOST_BYTES)
            self._replay()
        except OSError as error:
            raise LedgerError("The ledger %s cannot be opened: %s." % (path, error.strerror)) from None
        self.stored = self.told = self.last
        self._lines.append('["h",%s]\n' % quoted(boot_id()))
        for body in self._ran.values():
            self.ended(body)
        self._ran.clear()
        self.flush()

    @property
    def descriptor(self) -> int:
        """Of the file; another one after it was replaced."""
        return self._fd

    def close(self) -> None:
        self._next_sync = 0.0
        self.sync()
        os.close(self._fd)

    # What the host tells

    def starting(self, id: str, marker: str, grant: List[NodeGrant]) -> bool:
        """Write down that `id` may run from now on. `False`: that failed, do not start it."""
        if self.trouble:
            return False
        self._lines.append(starting_line(id, marker, grant))
        if not self.flush():
            return False
        self.open[id] = _unsure(marker, grant)
        return True

    def started(self, id: str, opened: Opened) -> Tuple[int, Record]:
        body = Started(id, opened.pid, opened.at, opened.grant)
        self.open[id] = opened
        return self._record(body, _started_line(self.last + 1, body, opened.since, opened.until))

    def ended(self, body: Ended) -> Tuple[int, Record]:
        self.open.pop(body.id, None)
        self._ended.add(body.id)
        return self._record(body, _ended_line(self.last + 1, body))

    def _record(self, body: Record, line: str) -> Tuple[int, Record]:
        self.last += 1
        self._lines.append(line)
        numbered = (self.last, body)
        self._kept.append(numbered)
        return numbered

    # What the host asks

    def knows(self, id: str) -> bool:
        """Whether `id` was started, as far as the manager has not acknowledged its end."""
        return id in self.open or id in self._ended

    def unacknowledged(self) -> List[Tuple[int, Record]]:
        """For a manager that asks for everything: all that may be told."""
        self.told = max(self.told, self.stored)
        return [numbered for numbered in self._kept if numbered[0] <= self.stored]

    def untold(self) -> List[Tuple[int, Record]]:
        """For a manager that has been told the rest: what may be told since."""
        told, self.told = self.told, max(self.told, self.stored)
        newest_first = itertools.takewhile(lambda numbered: numbered[0] > told, reversed(self._kept))
        return [numbered for numbered in newest_first if numbered[0] <= self.stored][::-1]

    def closing(self) -> List[Running]:
        """Jobs that are over, but whose ends may not be told yet: for others they are still under way."""
        return [
            Running(body.id, body.pid, body.started, body.grant)
            for number, body in self._kept
            if number > self.stored and isinstance(body, Ended)
        ]

    def seen(self, number: int) -> None:
        """A manager has seen records up to this one. Those that a crash of this machine took from the ledger must not
        lend their numbers to others, which would pass for old ones."""
        if number > self.told:
            shift = number - self.told
            self._lines.append('["n",%d,%d]\n' % (self.told, shift))
            self.stored = min(self.stored, self.told)
            self._renumber(self.told, shift)
            self.told = number

    def acknowledge(self, number: int) -> None:
        """The manager has all records up to `number`. Stored with the next `sync`."""
        kept = self._kept
        while kept and kept[0][0] <= number:
            body = kept.popleft()[1]
            if isinstance(body, Ended):
                self._ended.discard(body.id)
        self.acknowledged = max(self.acknowledged, number)

    def _renumber(self, above: int, shift: int) -> None:
        self._kept = deque((number + shift if number > above else number, body) for number, body in self._kept)
        self.last = max(self.last, above) + shift

    # Disk

    def flush(self) -> bool:
        """Hand all lines to the operating system, so that they outlive this process."""
        if self._lines:
            self._unwritten += ("\n" + "".join(self._lines)).encode("ascii")
            self._lines.clear()
        while self._unwritten:
            try:
                written = os.write(self._fd, self._unwritten)
            except OSError as error:
                self._complain(error)
                return False
            if written < len(self._unwritten):
                # What was cut off is written again.
                whole = self._unwritten.rfind(b"\n", 0, written) + 1
                self._unwritten = b"\n" + self._unwritten[whole:]
            else:
                self._unwritten = b""
            self._unsynced = True
            self.trouble = ""
        self.stored = self.last
        return True

    def sync_due(self) -> Optional[float]:
        """When `sync` has something to do next, in monotonic seconds."""
        if self._unsynced or self._lines or self._unwritten or self.acknowledged > self._stored_ack:
            return self._next_sync
        return None

    def sync(self) -> None:
        """Bring lines to the disk itself, so that they outlive the machine; at most once a second."""
        due = self.sync_due()
        now = time.monotonic()
        if due is None or now < due:
            return
        self._next_sync = now + SYNC_INTERVAL
        if self.acknowledged > self._stored_ack:
            self._lines.append('["a",%d]\n' % self.acknowledged)
            self._stored_ack = self.acknowledged
        if not self.flush():
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # Some special files cannot be synced; that is no loss.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                self._complain(error)
                return
        self._unsynced = False
        self.trouble = ""
        size = os.fstat(self._fd).st_size
        if size > self._compact_above and self._size_of_rest() * 2 < size:
            self.before_replacing()
            self._compact()

    def _complain(self, error: OSError) -> None:
        self.trouble = "The ledger %s cannot be written: %s. No job is started until it can." % (
            self.path,
            os.strerror(error.errno or 0),
        )

    def _size_of_rest(self) -> int:
        return (len(self._kept) + 2 * len(self.open)) * _BYTES_PER_RECORD

    def _compact(self) -> None:
        """Replace the file by one that holds only what is still needed."""
        lines = ['["h",%s]\n' % quoted(boot_id()), '["a",%d]\n' % self.acknowledged]
        for id, opened in self.open.items():
            lines.append(starting_line(id, opened.marker, opened.grant))
        told = set()
        for number, body in self._kept:
            if isinstance(body, Started):
                told.add(body.id)
                opened_now = self.open.get(body.id)
                ticks = (opened_now.since, opened_now.until) if opened_now else (0, 0)
                lines.append(_started_line(number, body, *ticks))
            else:
                lines.append(_ended_line(number, body))
        for id, opened in self.open.items():
            if opened.pid and id not in told:
                # Number 0 is below every acknowledgement: remembered, never sent again.
                body = Started(id, opened.pid, opened.at, opened.grant)
                lines.append(_started_line(0, body, opened.since, opened.until))
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
            self._compact_above += COMPACT_ABOVE
            return
        os.close(self._fd)
        self._fd = new_fd
        self._lines.clear()
        self._unwritten = b""
        self.stored = self.last
        self._stored_ack = self.acknowledged
        self._compact_above = COMPACT_ABOVE

    def _replay(self) -> None:
        boot = ""
        with open(os.dup(self._fd), "rb") as file:
            for line in file:
                if line == b"\n":
                    continue
                try:
                    fields = json.loads(line.decode("ascii", "replace"))
                    if fields[0] == "h":
                        if fields[1] != boot:
                            self._forget_processes()
                        boot = fields[1]
                    else:
                        self._take(fields)
                except (ValueError, LookupError, TypeError):
                    self.unreadable_lines += 1
        if boot != boot_id():
            self._forget_processes()
        self._stored_ack = self.acknowledged
        self.last = max(self.last, self.acknowledged)
        self.acknowledge(self.acknowledged)

    def _take(self, fields: List[Any]) -> None:
        kind, rest = fields[0], fields[1:]
        if kind == "b":
            id, marker, *grant = rest  # earlier versions wrote none
            self.open[id] = _unsure(marker, _grant(*grant))
        elif kind == "s":
            number, id, pid, at, grant, since, until = rest
            before = self.open.get(id)
            self.open[id] = Opened(before.marker if before else "", pid, at, _grant(grant), since, until)
            if number:
                self._kept.append((number, Started(id, pid, at, _grant(grant))))
                self.last = max(self.last, number)
        elif kind == "e":
            number, id, at, exit_code, reason, message, pid, started, *grant = rest
            self.open.pop(id, None)
            self._ran.pop(id, None)
            self._ended.add(id)
            self._kept.append((number, Ended(id, at, exit_code, reason, message, pid, started, _grant(*grant))))
            self.last = max(self.last, number)
        elif kind == "x":
            id, pid, started, at = rest
            before = self.open.pop(id, None)
            self._ended.add(id)
            self._ran[id] = Ended(id, at, 0, "exit", "", pid, started, before.grant if before else [])
        elif kind == "a":
            self.acknowledged = max(self.acknowledged, rest[0])
        elif kind == "n":
            self._renumber(*rest)
        else:
            raise ValueError(kind)

    def _forget_processes(self) -> None:
        """The machine was booted since: no pid from before means anything."""
        self.open = {id: opened._replace(since=0, until=0) for id, opened in self.open.items()}


def _grant(read: Sequence[Any] = ()) -> List[NodeGrant]:
    return [(node, tuple(cores), tuple(gpus)) for node, cores, gpus in read]


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
