"""A copy of a registry's WAL that grows with it."""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.journal.registry_files import WAL_HEADER_SIZE, wal_header

FRAME_HEADER_SIZE = 24
_SALTS = slice(16, 24)
"""Where the header has the salts. A frame has them at offset 8, after the number of its page and the number of pages of
the database after a commit, which is zero in frames that do not end a transaction."""
_NO_COMMIT = bytes(4)

CHUNK = 1 << 20
SETTLE_SECONDS = 5.0
"""Age from which committed frames are not read again. Network file systems may show later frames before earlier ones;
a manager syncs its WAL every half second."""
RECOPY_SECONDS = 60.0
"""Time between two copies of the whole WAL, in case a manager took longer to sync it."""


class WalRestarted(Exception):
    """The WAL was restarted or removed while it was copied."""


class WalCopy:
    """Copies frames as they are appended.

    SQLite restarts a WAL by writing a new header with other salts, and overwrites old frames one by one. Only frames
    with the salts of the header are copied. SQLite checks their checksums when the copy is opened, so that a frame that
    was copied while it was written does no harm; it is copied again.
    """

    def __init__(self, registry: Path, copy: Path, header: bytes) -> None:
        self.header = header
        self._registry = registry
        self._copy = copy
        self._frame_size = FRAME_HEADER_SIZE + int(struct.unpack(">I", header[8:12])[0])
        self._commits: deque[tuple[float, int]] = deque()
        """Times, and the end of the last committed frame that had been copied by then."""
        self._copied_whole = 0.0
        self.committed = 0
        """End of the last committed frame."""
        copy.write_bytes(header)

    def extend(self) -> int:
        """Copy new frames; returns the number of bytes copied. Raises WalRestarted."""
        now = time.monotonic()
        start = self._start(now)
        copied = 0
        with open(self._copy, "r+b", buffering=0) as target:
            for offset, frames in self._chunks(start):
                # A frame may have been overwritten while it was read.
                if wal_header(self._registry) != self.header:
                    raise WalRestarted
                target.seek(offset)
                target.write(frames)
                copied += len(frames)
                self._note_commit(offset, frames)
        if wal_header(self._registry) != self.header:
            raise WalRestarted
        self._commits.append((now, self.committed))
        return copied

    def _start(self, now: float) -> int:
        """The offset of the first frame to copy."""
        if now - self._copied_whole >= RECOPY_SECONDS:
            self._copied_whole = now
            self._commits.clear()
        while len(self._commits) > 1 and now - self._commits[1][0] >= SETTLE_SECONDS:
            self._commits.popleft()
        if self._commits and now - self._commits[0][0] >= SETTLE_SECONDS:
            return max(self._commits[0][1], WAL_HEADER_SIZE)
        return WAL_HEADER_SIZE

    def _chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Offsets and contents of consecutive frames that have the salts of the header."""
        salts = self.header[_SALTS]
        size = self._frame_size
        most = max(CHUNK // size, 1) * size
        try:
            descriptor = open_own(f"{self._registry}-wal")
        except FileNotFoundError:
            raise WalRestarted from None
        try:
            while True:
                data = os.pread(descriptor, most, start)
                valid = 0
                while valid + size <= len(data) and data[valid + 8 : valid + 16] == salts:
                    valid += size
                if valid:
                    yield start, data[:valid]
                start += valid
                if valid < most:
                    return
        finally:
            os.close(descriptor)

    def _note_commit(self, offset: int, frames: bytes) -> None:
        size = self._frame_size
        for begin in range(len(frames) - size, -1, -size):
            if frames[begin + 4 : begin + 8] != _NO_COMMIT:
                self.committed = max(self.committed, offset + begin + size)
                return
