"""`jobs.report`: one entry for each job and iteration that has ended, written as they end, each exactly once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Container, Iterable
from itertools import takewhile
from pathlib import Path
from typing import Literal

from qcg.pilotjob.host.safe_open import open_output
from qcg.pilotjob.report.entries import json_entry, text_entry
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.record import JobEnd
from qcg.pilotjob.report.recovery import TAIL, Key, ends_whole, entries_of, key_of

Format = Literal["text", "json", "none"]

UNKNOWN = -1
"""In the place of a length: the report is being recovered, and may have any."""

_ENTRIES: dict[Format, Callable[[JobEnd], bytes] | None] = {"text": text_entry, "json": json_entry, "none": None}


class ReportWriter:
    """Gathers entries until `flush`, which says how long the report is now.

    Whoever stores that length together with the ends themselves, in one transaction, has each end reported exactly
    once: `resume` cuts off what was written without being stored. The format `none` makes no file.

    A crash of the machine may take more than that: then `whole` is false, and `recover` keeps the entries that are
    left, so that the others can be added again.
    """

    def __init__(self, path: Path, format: Format, keep: int = 0) -> None:
        """A new report, in the place of one that may be there; but of that one its first `keep` bytes stay, or all of
        it when `keep` is UNKNOWN."""
        self.path = path
        self.whole = True
        """Whether all of `keep` is there, and not damaged."""
        self._entry = _ENTRIES[format]
        self._gathered: list[bytes] = []
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
        """Go on with the report of an earlier manager after its first `size` bytes."""
        return cls(path, format, keep=size)

    def recover(self) -> set[Key]:
        """Drop what is damaged, and the last entry, which may be cut short; the keys of all entries that stay."""
        assert self._file is not None
        try:
            report = self.path.read_bytes()[: self._size]
            entries = list(entries_of(report))[:-1]
            intact = list(takewhile(lambda entry: entry.key is not None, entries))
            self._size = sum(len(entry.text) for entry in intact)
            self._gathered = [entry.text for entry in entries[len(intact) :] if entry.key is not None]
            self._cut()
        except OSError as error:
            raise _failure("read", self.path, error) from error
        return {entry.key for entry in entries if entry.key is not None}

    def add_missing(self, ends: Iterable[JobEnd], known: Container[Key]) -> int:
        """Add these ends in the order of time, but for those that are in the report already; how many there were."""
        missing = []
        for end in ends:
            assert self._entry is not None
            entry = self._entry(end)
            if key_of(entry) not in known:
                missing.append((end.ended, end.iterations is not None, entry))
        missing.sort(key=lambda one: one[:2])  # an iterated job ends after its iterations
        self._gathered += [entry for _, _, entry in missing]
        return len(missing)

    def ended(self, end: JobEnd) -> None:
        if self._entry is not None:
            self._gathered.append(self._entry(end))

    @property
    def length(self) -> int:
        """With all that is gathered."""
        return self._size + sum(map(len, self._gathered))

    def take_back(self, length: int) -> None:
        """Forget all beyond this length: it never happened."""
        kept = b"".join(self._gathered)[: max(length - self._size, 0)]
        self._gathered = [kept] if kept else []
        self._size = min(self._size, length)

    def flush(self) -> int:
        """Hand everything gathered to the operating system; the length of the report.

        When that fails, all of it stays gathered. The next try writes to the same place, over what may have got there.
        """
        if self._file is None or not self._gathered:
            return self._size
        data = b"".join(self._gathered)
        self._gathered = [data]
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError as error:
            raise _failure("written", self.path, error) from error
        self._gathered = []
        self._size += written
        return self._size

    def close(self) -> None:
        """Flush, and leave no part of an entry behind."""
        if self._file is None:
            return
        try:
            self.flush()
        finally:
            self._cut()
            os.close(self._file)
            self._file = None

    def _looks_whole(self) -> bool:
        """After a crash of the machine, file systems fill what they have not written with zeros."""
        tail = b""
        with self.path.open("rb") as report:
            while block := report.read(TAIL):
                if b"\0" in block:
                    return False
                tail = tail[-TAIL:] + block
        return not tail or ends_whole(tail)

    def _cut(self) -> None:
        """Take away what does not belong to the report. Devices, such as /dev/null, have nothing to take away."""
        if self._file is not None and os.fstat(self._file).st_size > self._size:
            os.ftruncate(self._file, self._size)


def _failure(done: str, path: Path, error: OSError) -> ReportError:
    advice = "make room, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return ReportError(
        f"The report {path} could not be {done}: {error.strerror}; {advice}give another file with --report-file."
    )
