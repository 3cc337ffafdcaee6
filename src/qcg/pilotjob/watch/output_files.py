"""Parts of the output of jobs: from files, and from output streams."""

from __future__ import annotations

import os
from collections.abc import Mapping

from qcg.pilotjob.host.safe_open import open_regular
from qcg.pilotjob.host.stream_format import KINDS
from qcg.pilotjob.runs.output_streams import OutputStreams
from qcg.pilotjob.watch.source import Output

MOST_BYTES = 1 << 20
"""Most bytes of one part."""


def read_output(streams: Mapping[str, str], stream: str, offset: int, limit: int) -> Output | None:
    """A part of the output of a job; None if it has no such output. A negative offset counts from the end.

    `streams`: paths of its files, as `JobViews.streams_of` has them."""
    if stream not in KINDS:
        return None
    limit = max(min(limit, MOST_BYTES), 0)
    try:
        if "stream" in streams:
            return _of_stream(streams["stream"], streams["streamName"], stream, offset, limit)
        return _of_file(streams[stream], offset, limit) if stream in streams else None
    except (OSError, ValueError):  # no such file, another kind of file, or a path with a NUL character
        return None


def _of_file(path: str, offset: int, limit: int) -> Output:
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        start = _start(offset, size)
        return _output(path, os.pread(descriptor, limit, start), start, size)
    finally:
        os.close(descriptor)


def _of_stream(directory: str, name: str, stream: str, offset: int, limit: int) -> Output | None:
    with OutputStreams(directory) as streams:
        attempt = streams.attempt(name)
        if attempt is None:
            return None
        pieces = [(part.file, frame) for part in attempt.parts for frame in part.frames(KINDS[stream])]
        size = sum(frame.length for _, frame in pieces)
        start, at, found = _start(offset, size), 0, b""
        for file, frame in pieces:
            if at + frame.length > start and len(found) < limit:
                # Padded to the length in the frame header if the content is damaged, so that offsets stay the same.
                found += file.payload(frame).ljust(frame.length, b"?")[max(start - at, 0) :]
            at += frame.length
        return _output(f"{stream} of {name} in {directory}", found[:limit], start, size)


def _start(offset: int, size: int) -> int:
    return max(size + offset, 0) if offset < 0 else min(offset, size)


def _output(path: str, data: bytes, start: int, size: int) -> Output:
    whole = data[: len(data) - _cut_off(data)] if start + len(data) < size else data
    return Output(path, whole.decode("utf-8", "replace"), start + len(whole), size)


def _cut_off(data: bytes) -> int:
    """The number of bytes at the end that belong to an incomplete character."""
    for length in range(1, min(4, len(data)) + 1):
        byte = data[-length]
        if byte & 0xC0 == 0x80:
            continue
        needs = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return length if needs > length and length < len(data) else 0
    return 0
