"""Output of jobs in output streams, for `qcg-pm logs`: shown, followed and exported."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.output_files import PAUSE, Follower
from qcg.pilotjob.common.terminal_output import ProgramOutput
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.host.stream_format import KINDS
from qcg.pilotjob.launch.output import safe_name
from qcg.pilotjob.runs.output_streams import Attempt, OutputStreams, Part, without_ordinal

LOOKUP_PAUSE = 1.0
"""Seconds between two searches for further parts of output that is followed."""
_INDEX = re.compile(r"\.-?[0-9]+$")
"""The index of an iteration at the end of a name."""
_SUFFIXES = {"stdout": ".out", "stderr": ".err"}


def is_streamed(entry: dict[str, Any]) -> bool:
    """Whether a job has output in a stream, by its entry of `jobInfo`."""
    return "stream" in entry.get("data", {}).get("runtime", {})


def check_attempt(name: str, entry: dict[str, Any], number: int | None) -> int:
    """The number of the attempt to show: the given one, or the last. Raises Denial when there is no such attempt."""
    last = len(entry.get("data", {}).get("attempts", ())) + 1
    if number is not None and number > last:
        raise Denial(f"job {name!r} has had {pluralize(last, 'attempt')}; there is no attempt {number}")
    return number or last


def is_earlier(name: str, entry: dict[str, Any], number: int | None) -> bool:
    """Whether this is not the last attempt. Raises Denial when there is no such attempt."""
    return check_attempt(name, entry, number) < check_attempt(name, entry, None)


def stream_name(name: str, entry: dict[str, Any], number: int | None) -> str:
    """The name in the stream of an attempt of a job; None for the last attempt."""
    ordinal = check_attempt(name, entry, number)
    base, _ = without_ordinal(entry["data"]["runtime"]["streamName"])
    return _of_attempt(base, ordinal)


def show_stream(
    name: str,
    entry: dict[str, Any],
    stream: str,
    number: int | None,
    lines: int | None,
    *,
    raw: bool,
    heading: str = "",
) -> bool:
    """Show the output of a job. Returns False when there is none. `heading`: a line before the output."""
    with OutputStreams(entry["data"]["runtime"]["stream"]) as streams:
        attempt = streams.attempt(stream_name(name, entry, number))
        if attempt is None or not any(attempt.chunks(KINDS[stream])):
            return False
        if heading:
            echo(heading)
        with ProgramOutput(raw=raw) as output:
            for chunk in attempt.chunks(KINDS[stream]) if lines is None else _end_of(attempt, KINDS[stream], lines):
                output.write(chunk)
            output.flush()
        return True


def has_content(entry: dict[str, Any], stream: str) -> bool:
    """Whether the last attempt has written to a stream."""
    runtime = entry["data"]["runtime"]
    with OutputStreams(runtime["stream"]) as streams:
        attempt = streams.attempt(runtime["streamName"])
        return attempt is not None and any(attempt.chunks(KINDS[stream]))


def _end_of(attempt: Attempt, kind: int, lines: int) -> list[bytes]:
    """The last lines, in pieces."""
    pieces: list[bytes] = []
    breaks = 0
    for chunk in attempt.last_chunks(kind) if lines else ():
        pieces.append(chunk)
        breaks += chunk.count(b"\n")
        if breaks > lines:
            break
    pieces.reverse()
    return [last_lines(b"".join(pieces), lines)]


def last_lines(data: bytes, lines: int) -> bytes:
    """The last lines with their line breaks; only `\\n` ends a line."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1 :] if lines else b""


class StreamFollower:
    """Shows the output of a job in a stream until the job has ended, from attempt to attempt."""

    def __init__(self, follower: Follower, name: str, streams: OutputStreams) -> None:
        self._follower = follower
        self._name = name
        self._streams = streams
        self._cursors: dict[tuple[str, int], int] = {}
        """Offsets up to which parts were shown, by file and offset of the part."""

    def follow(self, stream: str, number: int | None, lines: int | None, *, raw: bool) -> bool:
        """Follow one stream. Returns False when nothing was written."""
        kind, shown, looked_at = KINDS[stream], False, 0.0
        attempt: Attempt | None = None
        with ProgramOutput(raw=raw) as output:
            while True:
                # Before the files are read, so that the last lines are shown, too.
                over = self._follower.is_over()
                if over or attempt is None or time.monotonic() >= looked_at + LOOKUP_PAUSE:
                    looked_at = time.monotonic()
                    before, attempt = attempt, self._find(number)
                    if before is not None and attempt is not None and before.id != attempt.id:
                        shown = self._show(before, kind, output, None) or shown
                if attempt is not None:
                    shown = self._show(attempt, kind, output, lines) or shown
                    lines = None
                if over:
                    return shown
                time.sleep(PAUSE)

    def _find(self, number: int | None) -> Attempt | None:
        entry = self._follower.info()
        return self._streams.attempt(stream_name(self._name, entry, number)) if is_streamed(entry) else None

    def _show(self, attempt: Attempt, kind: int, output: ProgramOutput, lines: int | None) -> bool:
        """Show the output since the last call; of that, only the last lines."""
        shown = False
        kept = b""
        for part in attempt.parts:
            for chunk in self._new_chunks(part, kind):
                shown = True
                if lines is None:
                    output.write(chunk)
                else:
                    kept = last_lines(kept + chunk, lines + 1)
        output.write(b"" if lines is None else last_lines(kept, lines))
        output.flush()
        return shown

    def _new_chunks(self, part: Part, kind: int) -> list[bytes]:
        key = str(part.file.path), part.opened.offset
        cursor = self._cursors.get(key, part.opened.end)
        chunks = []
        for frame in part.file.frames(cursor):
            cursor = frame.end
            if frame.number == part.opened.number and frame.kind == kind:
                chunks.append(part.file.payload(frame))
        self._cursors[key] = cursor
        return chunks


def export(
    directory: Path,
    target: Path,
    names: Collection[str] | None,
    kinds: Collection[str],
    number: int | None,
    *,
    earlier: bool,
) -> tuple[int, int, int]:
    """Write output in streams to files of their own: `NAME.out` and `NAME.err` for the last attempt, `NAME~1.out` for
    the first of several.

    `names`: only these jobs and iterations. `number`: only this attempt of each. `earlier`: all attempts, not only the
    last one. Returns the number of attempts, of
    files and of damaged frames."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise Denial(f"{target} is not empty; export to a new directory")
        wanted = None if names is None else {_base_of(name) for name in names}
        with OutputStreams(directory) as streams:
            found = [(attempt, *without_ordinal(attempt.name)) for attempt in streams.last_attempts()]
            last: dict[str, int] = {}
            for _, base, ordinal in found:
                last[base] = max(ordinal, last.get(base, 0))
            attempts = files = 0
            for attempt, base, ordinal in found:
                if wanted is not None and base not in wanted and _INDEX.sub("", base) not in wanted:
                    continue
                if earlier or ordinal == (number or last[base]):
                    attempts += 1
                    name = base if ordinal == last[base] else f"{base}~{ordinal}"
                    files += sum(_export_stream(attempt, stream, target / name) for stream in kinds)
            return attempts, files, streams.damaged
    except OSError as error:
        raise Denial(f"{error.filename or target} cannot be written: {error.strerror}") from None


def file_name(name: str, ordinal: int) -> str:
    """The name of the saved output of an attempt, without the ending for the stream."""
    return _of_attempt(_base_of(name), ordinal)


def _of_attempt(base: str, ordinal: int) -> str:
    return base if ordinal == 1 else f"{base}~{ordinal}"


def _base_of(name: str) -> str:
    """The name in streams of a job or iteration, without the number of an attempt."""
    job, _, index = name.partition(":")
    return f"{safe_name(job)}.{index}" if index else safe_name(job)


def _export_stream(attempt: Attempt, stream: str, target: Path) -> bool:
    """Whether there was anything to write. `target`: the file without its suffix."""
    chunks = attempt.chunks(KINDS[stream])
    first = next(chunks, None)
    if first is None:
        return False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(f"{target}{_SUFFIXES[stream]}", flags, 0o666), "wb") as file:
        file.write(first)
        file.writelines(chunks)
    return True
