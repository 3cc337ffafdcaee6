"""Reads the ledgers of a run while supervisors write to them: of this host, of other login hosts, of batch jobs.

The ledger is the truth and a channel only a faster way to read it: commands and channels read the same files. A reader
never writes to a ledger. The acknowledged number is in a file of its own, `NAME.acked`.
"""

import os
import time
from collections import deque
from typing import Any, Deque, Dict, List, Set, Tuple

from qcg.pilotjob.host import ledger_format as form
from qcg.pilotjob.host.ledger import MOST_BYTES
from qcg.pilotjob.host.records import Ended, RecordBody, Running, Started
from qcg.pilotjob.host.remote.claims import claimed_ids, read_claim, remove_claims
from qcg.pilotjob.host.remote.errors import CannotWrite, CommandError, os_error
from qcg.pilotjob.host.remote.layout import LEDGER_SUFFIX, Layout, read_text, write_number
from qcg.pilotjob.host.safe_open import open_own

ACKED_SUFFIX = ".acked"
HOLES_LAST_AT_MOST = 120.0
"""Seconds after which a client of a network file system sees what another one has written, with some to spare."""
RECORDS_WAIT_AT_MOST = 3600.0
"""Seconds that a record of a batch job may wait for the command that writes it."""

Numbered = Tuple[int, RecordBody]


class LedgerView:
    """Contents of a ledger up to its last `read`."""

    def __init__(self, path: str, keeps_open: bool = False) -> None:
        """`keeps_open`: the file stays open after a read, and is read on when it was removed, as long as the supervisor
        writes to it."""
        self._path = path
        self._keeps_open = keeps_open
        self._kept_descriptor = -1
        self._offset = 0
        self._file_id = (-1, -1)
        self._written_at = 0.0
        self._hole_at = -1
        """Position of the line at which reading stopped; -1: at none."""
        self._hole_since = 0.0
        self._clear()
        self.last = 0
        """Number of the newest record."""
        self.boot = ""
        """Boot id of the last process that opened the ledger."""

    def _clear(self) -> None:
        self.open: Dict[str, Running] = {}
        """Starts without an end, by id; pid 0 when the ledger does not say whether a process was started."""
        self.kept: Deque[Numbered] = deque()
        """Records that are not acknowledged."""
        self.ended: Set[str] = set()
        """Ids of ends in `kept`."""
        self.acknowledged = 0

    def read(self) -> List[Numbered]:
        """Read new lines. Returns their records."""
        try:
            descriptor = open_own(self._path, most_bytes=MOST_BYTES)
        except FileNotFoundError:
            if self._kept_descriptor < 0:
                return []
            descriptor = os.dup(self._kept_descriptor)
        except OSError as error:
            raise os_error("The ledger %s cannot be read" % self._path, error) from None
        new: List[Numbered] = []
        try:
            status = os.fstat(descriptor)
            known = self.last
            self._written_at = status.st_mtime
            if (status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset:
                # Another file has replaced it: a ledger that became long is written again without its old records.
                self._file_id, self._offset = (status.st_dev, status.st_ino), 0
                acknowledged = self.acknowledged
                self._clear()
                self.acknowledged = acknowledged
            content = _read_from(descriptor, self._offset, status.st_size)
            # A line without its end is being written.
            whole = content.rfind(b"\n") + 1
            self._offset += self._apply_lines(content[:whole], new)
        finally:
            if self._keeps_open:
                descriptor, self._kept_descriptor = self._kept_descriptor, descriptor
            if descriptor >= 0:
                os.close(descriptor)
        return [numbered for numbered in new if numbered[0] > known]

    def acknowledge(self, number: int) -> List[str]:
        """Forget records up to this number. Returns the ids of ended attempts among them."""
        ids = []
        while self.kept and self.kept[0][0] <= number:
            body = self.kept.popleft()[1]
            if isinstance(body, Ended):
                self.ended.discard(body.id)
                ids.append(body.id)
        self.acknowledged = max(self.acknowledged, number)
        return ids

    def _apply_lines(self, content: bytes, new: List[Numbered]) -> int:
        """Returns how many bytes were read: up to the end, or to a line that has to be read again."""
        lines = content.split(b"\n")
        read = 0
        for index, line in enumerate(lines[:-1]):
            if line:
                entry = self._parse(line)
                if entry is not None:
                    self._apply(entry, new)
                elif not self._is_settled(self._offset + read, lines[index + 1 : -1]):
                    return read
            read += len(line) + 1
        self._hole_at = -1
        return read

    def _parse(self, line: bytes) -> Any:
        """None for a line that cannot be read."""
        try:
            return form.read_line(line)
        except form.UnknownVersion as version:
            text = "The ledger %s has version %s of its format, which this program cannot read."
            raise CommandError(text % (self._path, version)) from None
        except (ValueError, LookupError, TypeError):
            return None

    def _is_settled(self, position: int, lines: List[bytes]) -> bool:
        """Whether a line that cannot be read hides no record, judged by the lines after it.

        A line that was cut off by a full disk is written again, or its number is used again. A client of a network file
        system may see zeros for a while in place of lines that another client has written: these are read later. Only
        a crash of a machine leaves such a hole for good."""
        last = self.last
        for line in lines:
            entry = self._parse(line) if line else None
            if isinstance(entry, form.Acknowledged):
                last = max(last, entry.number)
            elif isinstance(entry, form.Renumbered) and entry.above <= last:
                last += entry.shift
            elif isinstance(entry, (form.StartedLine, form.EndedLine)) and entry.number:
                return entry.number <= last + 1 or self._is_there_for_good(position, entry.body.at)
        return False

    def _is_there_for_good(self, position: int, next_at: float) -> bool:
        """Whether the hole at this position is old. `next_at`: the time in the record after it, which may have been
        written much later."""
        if position != self._hole_at:
            self._hole_at, self._hole_since = position, time.monotonic()
        now = time.time()
        return (
            time.monotonic() > self._hole_since + HOLES_LAST_AT_MOST
            or self._written_at < now - HOLES_LAST_AT_MOST
            or next_at < now - RECORDS_WAIT_AT_MOST
        )

    def _apply(self, entry: Any, new: List[Numbered]) -> None:
        if isinstance(entry, form.Starting):
            self.open[entry.id] = Running(entry.id, 0, 0.0, entry.grant)
        elif isinstance(entry, form.StartedLine):
            body = entry.body
            self.open[body.id] = Running(body.id, body.pid, body.at, body.grant)
            self._keep(entry.number, body, new)
        elif isinstance(entry, form.EndedLine):
            self.open.pop(entry.body.id, None)
            if entry.number > self.acknowledged:
                self.ended.add(entry.body.id)
            self._keep(entry.number, entry.body, new)
        elif isinstance(entry, form.Acknowledged):
            self.acknowledge(entry.number)
            self.last = max(self.last, entry.number)
        elif isinstance(entry, form.Renumbered):
            self.last = max(self.last, entry.above) + entry.shift
        elif isinstance(entry, form.Header):
            self.boot = entry.boot_id

    def _keep(self, number: int, body: RecordBody, new: List[Numbered]) -> None:
        if number > self.acknowledged:
            self.kept.append((number, body))
            new.append((number, body))
        self.last = max(self.last, number)


class RunView:
    """All ledgers of a run, and its claims."""

    def __init__(self, layout: Layout, keeps_open: bool = False) -> None:
        """`keeps_open`: as for `LedgerView`; the ledgers stay open until this process ends."""
        self._layout = layout
        self._keeps_open = keeps_open
        self.ledgers: Dict[str, LedgerView] = {}
        self._stored: Dict[str, int] = {}
        """Acknowledged numbers that are in files, by ledger."""

    def read(self) -> Dict[str, List[Numbered]]:
        """Read the new lines of all ledgers. Returns the new records by ledger."""
        new = {}
        for name in self._names():
            view = self.ledgers.get(name)
            if view is None:
                path = self._layout.of_host(LEDGER_SUFFIX, name)
                view = self.ledgers[name] = LedgerView(path, self._keeps_open)
                view.acknowledge(read_acked(self._layout, name))
            records = view.read()
            if records:
                new[name] = records
        return new

    def _names(self) -> List[str]:
        try:
            return self._layout.ledgers()
        except FileNotFoundError:
            if not self._keeps_open:
                raise
            return list(self.ledgers)

    def read_one(self, name: str) -> List[Numbered]:
        """Read the new lines of one ledger."""
        view = self.ledgers.get(name)
        return self.read().get(name, []) if view is None else view.read()

    def acknowledge(self, acks: Dict[str, int]) -> None:
        """The manager's journal has all records up to these numbers, by ledger.

        Claims go first. If this process is killed in between, the ledger still has the ends. A number that cannot be
        stored is stored with the next acknowledgement: until then, other commands report some records again."""
        for name, number in acks.items():
            view = self.ledgers.get(name)
            if view is None:
                continue
            if number > view.acknowledged:
                remove_claims(self._layout, view.acknowledge(number))
            if number > self._stored.get(name, 0) and write_acked(self._layout, name, number):
                self._stored[name] = number

    def unacknowledged(self) -> Dict[str, List[Numbered]]:
        return {name: list(view.kept) for name, view in self.ledgers.items() if view.kept}

    def live(self) -> List[Running]:
        """All claimed attempts without a recorded end. Reads the ledgers after the claims, so that an attempt which
        ends meanwhile is not among them; its end is among those of `unacknowledged`."""
        claimed = claimed_ids(self._layout)
        self.read()
        ended: Set[str] = set()
        started: Dict[str, Running] = {}
        for view in self.ledgers.values():
            ended |= view.ended
            started.update(view.open)
        live = []
        for id in claimed:
            if id in started:
                live.append(started[id])
            elif id not in ended:
                claim = read_claim(self._layout, id)
                if claim is not None:
                    live.append(Running(id, 0, 0.0, claim.grant))
        return live

    def is_unsupervised(self) -> bool:
        """Whether attempts of this host have no end yet: they need a supervisor."""
        view = self.ledgers.get(self._layout.host)
        if view is not None and view.open:
            return True
        ended = view.ended if view is not None else set()
        for id in claimed_ids(self._layout):
            if id not in ended:
                claim = read_claim(self._layout, id)
                if claim is not None and claim.ledger in (self._layout.host, ""):
                    return True
        return False


def _read_from(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def to_json(records: List[Numbered]) -> List[Any]:
    """Records as in messages of agents. A start is left out when its end is among them, because the end repeats it."""
    over = {body.id for _, body in records if isinstance(body, Ended)}
    return [
        ["s" if isinstance(body, Started) else "e", number, list(body)]
        for number, body in records
        if isinstance(body, Ended) or body.id not in over
    ]


def read_acked(layout: Layout, name: str) -> int:
    text = read_text(layout.of_host(ACKED_SUFFIX, name))
    try:
        return int(text) if text else 0
    except ValueError:
        return 0


def write_acked(layout: Layout, name: str, number: int) -> bool:
    """False when the number cannot be written, as on a full disk."""
    try:
        if number > read_acked(layout, name):
            write_number(layout.of_host(ACKED_SUFFIX, name), number)
    except CannotWrite:
        return False
    return True
