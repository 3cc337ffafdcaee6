"""Writes `jobs.report`: one entry for each job and iteration that has ended, exactly once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Container, Iterable
from itertools import takewhile
from pathlib import Path
from typing import Literal

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.safe_open import open_output
from qcg.pilotjob.report.entries import json_entry, text_entry
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.record import JobEnd
from qcg.pilotjob.report.recovery import TAIL, Key, ends_whole, entries_of, key_of

Format = Literal["text", "json", "none"]

UNKNOWN = -1
"""Stored instead of a length while the report is being recovered."""

_ENTRIES: dict[Format, Callable[[JobEnd], bytes] | None] = {"text": text_entry, "json": json_entry, "none": None}


class ReportWriter:
    """Collects entries until `flush`, which returns the length of the report.

    The engine stores that length in the transaction that stores the ends of the jobs. `resume` cuts off entries beyond
    the stored length, so each end is reported exactly once. With the format `none` there is no file.

    A crash of the machine may damage stored entries, too: then `whole` is false, and `recover` keeps the undamaged
    entries, so that the others can be added again.
    """

    def __init__(self, path: Path, format: Format, keep: int = 0) -> None:
        """Create the report, or keep the first `keep` bytes of an existing one (all of it when `keep` is UNKNOWN)."""
        self.path = path
        self.whole = True
        """Whether the first `keep` bytes exist and are not damaged."""
        self._entry = _ENTRIES[format]
        self._pending: list[bytes] = []
        self._size = 0
        self._file: int | None = None
        if self._entry is not None:
            try:
                self._file = open_output(path, os.O_WRONLY | os.O_CREAT)
                found = os.fstat(self._file)
                self._size = found.st_size if keep == UNKNOWN else min(keep, found.st_size)
                self._cut()
                if keep and stat.S_ISREG(found.st_mode):
                    self.whole = self._size == keep and self._looks_whole()
            except OSError as error:
                if self._file is not None:
                    os.close(self._file)
                raise _failure("opened", path, error) from error

    @classmethod
    def resume(cls, path: Path, format: Format, size: int) -> ReportWriter:
        """Continue the report of an earlier manager after its first `size` bytes."""
        return cls(path, format, keep=size)

    def recover(self) -> set[Key]:
        """Drop damaged entries and the last one, which may be incomplete. Returns the keys of all other entries."""
        assert self._file is not None
        try:
            report = self.path.read_bytes()[: self._size]
            entries = list(entries_of(report))[:-1]
            intact = list(takewhile(lambda entry: entry.key is not None, entries))
            self._size = sum(len(entry.text) for entry in intact)
            self._pending = [entry.text for entry in entries[len(intact) :] if entry.key is not None]
            self._cut()
        except OSError as error:
            raise _failure("read", self.path, error) from error
        return {entry.key for entry in entries if entry.key is not None}

    def add_missing(self, ends: Iterable[JobEnd], known: Container[Key]) -> int:
        """Add the ends that are not in the report yet, in the order of time. Returns their number."""
        missing = []
        for end in ends:
            assert self._entry is not None
            entry = self._entry(end)
            if key_of(entry) not in known:
                missing.append((end.ended, end.iterations is not None, entry))
        missing.sort(key=lambda one: one[:2])  # an iterated job ends after its iterations
        self._pending += [entry for _, _, entry in missing]
        return len(missing)

    def ended(self, end: JobEnd) -> None:
        if self._entry is not None:
            self._pending.append(self._entry(end))

    @property
    def length(self) -> int:
        """Length of the report, including entries that are not written yet."""
        return self._size + sum(map(len, self._pending))

    def drop_beyond(self, length: int) -> None:
        """Drop all entries beyond this length, because the ends in them were not committed."""
        kept = b"".join(self._pending)[: max(length - self._size, 0)]
        self._pending = [kept] if kept else []
        self._size = min(self._size, length)

    def drop_jobs_beyond(self, names: Collection[str], length: int) -> None:
        """Drop the entries of these jobs and their iterations beyond this length. The caller has not flushed since the
        report had this length."""
        dropped = {printable(name).encode() for name in names} | {name.encode() for name in names}
        kept, offset = [], self._size
        for entry in self._pending:
            key = key_of(entry) if offset >= length else None
            offset += len(entry)
            if key is None or key.name.partition(b":")[0] not in dropped:
                kept.append(entry)
        self._pending = kept

    def flush(self) -> int:
        """Write all collected entries. Returns the length of the report.

        After an error all entries stay collected, and the next call writes them to the same offset again.
        """
        if self._file is None or not self._pending:
            return self._size
        data = b"".join(self._pending)
        self._pending = [data]
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError as error:
            raise _failure("written", self.path, error) from error
        self._pending = []
        self._size += written
        return self._size

    def close(self) -> None:
        """Flush, and cut off an incomplete entry."""
        if self._file is None:
            return
        try:
            self.flush()
        finally:
            self._cut()
            os.close(self._file)
            self._file = None

    def _looks_whole(self) -> bool:
        """Whether the file has no zeros, which file systems leave after a crash, and ends with a complete entry."""
        tail = b""
        with self.path.open("rb") as report:
            while block := report.read(TAIL):
                if b"\0" in block:
                    return False
                tail = tail[-TAIL:] + block
        return not tail or ends_whole(tail)

    def _cut(self) -> None:
        """Cut off bytes beyond the report. Devices such as /dev/null have none."""
        if self._file is not None and os.fstat(self._file).st_size > self._size:
            os.ftruncate(self._file, self._size)


def _failure(done: str, path: Path, error: OSError) -> ReportError:
    advice = "make room, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return ReportError(
        f"The report {path} could not be {done}: {error.strerror}; {advice}give another file with --report-file."
    )
