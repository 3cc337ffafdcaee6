"""The last lines of a job's output, shown with failed jobs."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.stream_format import KINDS
from qcg.pilotjob.journal.records import AttemptRecord
from qcg.pilotjob.report.record import JobEnd
from qcg.pilotjob.runs.output_streams import OutputStreams

SOURCES = ("stderr", "stdout", "stream", "streamName")
"""Keys of the streams that `end_of_output` reads."""
LINES = 10
BYTES = 8192


def has_started(attempt: AttemptRecord | JobEnd) -> bool:
    """Whether a process of an attempt was started, and so may have written output."""
    return bool(attempt.pid or attempt.started)


def leading_to(sentence: str, source: str) -> str:
    """A sentence about a failed job that introduces the last lines of `source`."""
    return f"{sentence.removesuffix('.')}; the end of {source}:"


def end_of_output(streams: Mapping[str, str]) -> tuple[str, list[str]]:
    """The last lines of a job's stderr, or of its stdout where stderr is empty, and the path of that file.

    `streams` holds the paths under `stderr` and `stdout`, as far as the job has such files, or the directory of its
    output stream as `stream` and the name there as `streamName`.
    """
    if "stream" in streams:
        return _end_of_stream(streams["stream"], streams["streamName"])
    for stream in ("stderr", "stdout"):
        lines = last_lines(streams[stream]) if stream in streams else []
        if lines:
            return streams[stream], lines
    return "", []


def last_lines(path: str, most: int = LINES) -> list[str]:
    """The last lines of a file; none when there is no such file, or it cannot be read."""
    try:
        start, data = _end_of(path)
    except OSError:
        return []
    return _lines(data, most, is_cut=bool(start))


def _lines(data: bytes, most: int, *, is_cut: bool) -> list[str]:
    lines = data.decode(errors="replace").splitlines()
    # The first line may be incomplete.
    whole = lines[1:] if is_cut and len(lines) > 1 else lines
    return [printable(line, keep="\t") for line in whole[-most:]]


def _end_of(path: str) -> tuple[int, bytes]:
    """The last part of a file, and its offset."""
    # The job may have left a pipe at this path: opening it must not block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return 0, b""
        start = max(status.st_size - BYTES, 0)
        return start, os.pread(descriptor, BYTES, start)
    finally:
        os.close(descriptor)


def _end_of_stream(directory: str, name: str) -> tuple[str, list[str]]:
    """The same for output in a stream; the name of the stream instead of a path."""
    try:
        with OutputStreams(directory) as streams:
            attempt = streams.attempt(name)
            for stream in ("stderr", "stdout"):
                data = b""
                for chunk in () if attempt is None else attempt.last_chunks(KINDS[stream]):
                    data = chunk + data
                    if len(data) > BYTES:
                        break
                if data:
                    return f"{stream} of {name} in {directory}", _lines(data[-BYTES:], LINES, is_cut=len(data) > BYTES)
    except OSError:
        pass
    return "", []
