"""Reads output streams: the files in which the output of many jobs of a run is collected.

The format is described in `host/stream_format.py`. An index leads to the frames of an attempt; data after its last
record is found by reading the headers of the frames. Damaged and cut-off frames are skipped."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.host.stream_format import (
    END,
    FILE_HEADER,
    FRAME,
    INDEX_RECORD,
    INDEX_SUFFIX,
    MARK,
    OPEN,
    SUFFIX,
    Frame,
    Opening,
    key_of,
    parse_frame,
    parse_opening,
)

BLOCK = 1 << 16
_ORDINAL = re.compile(r"(.*?)(?:~([1-9][0-9]{0,8}))?", re.DOTALL)
"""The number of an attempt has less digits than the checksum at the end of a long name."""


class Part(NamedTuple):
    """A part of the output of an attempt: the frames with one number in one file."""

    file: StreamFile
    opened: Frame
    opening: Opening
    ended: int
    """Offset of its last END frame that the index has; 0 when it has none."""

    def frames(self, kind: int) -> list[Frame]:
        """The frames of one kind that are in the file now, in their order."""
        if self.ended:
            frames = self._chain()
            if frames is not None:
                return [frame for frame in frames if frame.kind == kind]
        return [frame for frame in self.file.frames(self.opened.end) if self._is_mine(frame) and frame.kind == kind]

    def _is_mine(self, frame: Frame) -> bool:
        return frame.number == self.opened.number

    def _chain(self) -> list[Frame] | None:
        """All frames from the OPEN frame to the END frame; None when one of them is damaged."""
        found: list[Frame] = []
        offset = self.ended
        while offset > self.opened.offset:
            frame = self.file.frame_at(offset)
            if frame is None or not self._is_mine(frame) or frame.previous >= offset:
                return None
            found.append(frame)
            offset = frame.previous
        found.reverse()
        return found if offset == self.opened.offset else None


class Attempt(NamedTuple):
    """One start of a job, with the parts of its output."""

    name: str
    id: str
    parts: list[Part]

    def chunks(self, kind: int) -> Iterator[bytes]:
        """The output of one kind, piece by piece."""
        for part in self.parts:
            for frame in part.frames(kind):
                yield part.file.payload(frame)

    def last_chunks(self, kind: int) -> Iterator[bytes]:
        """The same pieces, the last one first."""
        for part in reversed(self.parts):
            for frame in reversed(part.frames(kind)):
                yield part.file.payload(frame)


class StreamFile:
    """A stream file that is open for reading, and its index."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, also for a file that belongs to somebody else."""
        self.path = path
        self._descriptor = open_own(path)
        self.damaged = 0
        """Number of damaged frames among the frames read so far."""

    def close(self) -> None:
        os.close(self._descriptor)

    def parts(self, name: str | None = None) -> list[Part]:
        """The parts of attempts with this name, or of all attempts."""
        index = self._read_index()
        ended: dict[int, int] = {}
        """Offsets of END frames by offsets of OPEN frames."""
        for opened, end in _records(index, None if name is None else key_of(name)):
            ended[opened] = max(end, ended.get(opened, 0))
        parts = [part for at, end in ended.items() if (part := self._part(self.frame_at(at), end)) is not None]
        # The index may lack the last frames.
        known = max([len(FILE_HEADER), *(max(found) for found in _records(index[-INDEX_RECORD.size :]))])
        by_number = {part.opened.number: place for place, part in enumerate(parts)}
        for frame in self.frames(known):
            if frame.kind == OPEN and frame.offset not in ended:
                part = self._part(frame, 0)
                if part is not None:
                    by_number[frame.number] = len(parts)
                    parts.append(part)
            elif frame.kind == END and frame.number in by_number:
                place = by_number[frame.number]
                parts[place] = parts[place]._replace(ended=frame.offset)
        return [part for part in parts if name is None or part.opening.name == name]

    def _part(self, frame: Frame | None, ended: int) -> Part | None:
        if frame is None or frame.kind != OPEN:
            return None
        opening = parse_opening(self.payload(frame))
        return None if opening is None else Part(self, frame, opening, ended)

    def _read_index(self) -> bytes:
        """All whole records of the index."""
        with suppress(OSError), os.fdopen(open_own(self.path.with_suffix(INDEX_SUFFIX)), "rb") as file:
            index = file.read()
            return index[: len(index) // INDEX_RECORD.size * INDEX_RECORD.size]
        return b""

    def frame_at(self, offset: int) -> Frame | None:
        return parse_frame(os.pread(self._descriptor, FRAME.size, offset), 0, offset)

    def frames(self, offset: int) -> Iterator[Frame]:
        """All whole frames from this offset on. A damaged one is skipped."""
        block, start, size = b"", offset, 0
        while True:
            at = offset - start
            if at < 0 or at + FRAME.size > len(block):
                block, start, at = os.pread(self._descriptor, BLOCK, offset), offset, 0
            frame = parse_frame(block, at, offset)
            if frame is not None and frame.end > size:
                size = os.fstat(self._descriptor).st_size
            if frame is not None and frame.end <= size:
                yield frame
                offset = frame.end
            elif len(block) - at < FRAME.size or frame is not None:
                return  # the end of the file, or a frame that is being written or was cut off there
            else:
                following = self._next_mark(offset + 1)
                if following is None:
                    return
                self.damaged += 1
                offset = following

    def payload(self, frame: Frame) -> bytes:
        """Empty when the content is damaged."""
        data = os.pread(self._descriptor, frame.length, frame.offset + FRAME.size)
        if len(data) == frame.length and zlib.crc32(data) == frame.checksum:
            return data
        self.damaged += 1
        return b""

    def _next_mark(self, offset: int) -> int | None:
        """The offset of the next whole header."""
        while True:
            block = os.pread(self._descriptor, BLOCK, offset)
            at = block.find(MARK)
            while at >= 0:
                header = os.pread(self._descriptor, FRAME.size, offset + at)
                if parse_frame(header, 0, offset + at) is not None:
                    return offset + at
                at = block.find(MARK, at + 1)
            if len(block) < BLOCK:
                return None
            offset += BLOCK - len(MARK) + 1


class OutputStreams:
    """The stream files of a run, for reading."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._files: dict[Path, StreamFile] = {}
        self._closing = ExitStack()

    def __enter__(self) -> OutputStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def damaged(self) -> int:
        """Number of damaged frames found so far."""
        return sum(file.damaged for file in self._files.values())

    def attempt(self, name: str) -> Attempt | None:
        """The last start with this name."""
        found = _by_start([part for file in self.files() for part in file.parts(name)])
        return found[-1] if found else None

    def last_attempts(self) -> Iterator[Attempt]:
        """The last start of every name, in the order of the names."""
        parts: dict[str, list[Part]] = {}
        for file in self.files():
            for part in file.parts():
                parts.setdefault(part.opening.name, []).append(part)
        for name in sorted(parts):
            yield _by_start(parts[name])[-1]

    def files(self) -> list[StreamFile]:
        """All stream files that there are now. Files of other users are left out."""
        with suppress(OSError):
            for path in sorted(self._directory.glob(f"*{SUFFIX}")):
                if path not in self._files:
                    with suppress(OSError):
                        file = self._files[path] = StreamFile(path)
                        self._closing.callback(file.close)
        return list(self._files.values())


def _records(index: bytes, key: bytes | None = None) -> Iterator[tuple[int, int]]:
    """The offsets of the OPEN frame and of the END frame (or 0) in the records with this key, or in all."""
    at = 0
    while at < len(index) and (key is None or (at := index.find(key, at)) >= 0):
        if at % INDEX_RECORD.size == 0:
            _, opened, ended, _, checksum = INDEX_RECORD.unpack_from(index, at)
            if checksum == zlib.crc32(index[at : at + INDEX_RECORD.size - 4]):
                yield opened, ended
        at += INDEX_RECORD.size - at % INDEX_RECORD.size if key is None else 1


def _by_start(parts: list[Part]) -> list[Attempt]:
    """The starts to which these parts of one name belong, the last one at the end."""
    starts: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.opening.at, part.opening.part)):
        starts.setdefault(part.opening.id, []).append(part)
    # In the order of their first parts: another start may have begun before a writer continued an earlier one.
    return [Attempt(found[0].opening.name, id, found) for id, found in starts.items()]


def without_ordinal(name: str) -> tuple[str, int]:
    """The name of a job in a stream without the number of its attempt, and this number."""
    matched = _ORDINAL.fullmatch(name)
    assert matched is not None
    return matched[1], int(matched[2] or 1)
