r"""The file `job.status` of an attempt: lines `KEY=value`, only ever appended to.

    ATTEMPT, RUN, HOST, BOOT, BATCH_SYSTEM, SUBMITTED       when the attempt is set up
    JOB_ID                                                  in a batch system, when it was submitted or has started
    STARTED_JOB_ID                                          in a batch system, when it has started
    PID, PROCESS_START, STARTED                             PROCESS_START in clock ticks after boot
    MESSAGE                                                 `time|text`, any number of times
    EXIT_CODE or SIGNAL, END_REASON, END_MESSAGE, ENDED
    USAGE                                                   what it used: the fields of `Usage`, separated by blanks

Each write begins with a new line, because a full disk may have cut off the end of the write before. Empty lines mean
nothing. Times are ISO 8601 in UTC. In values, `\n`, `\r` and `\\` stand for a line feed, a carriage return and a
backslash.
"""

import time
from functools import lru_cache
from typing import Any, Dict, Iterable, List, Optional, Tuple

from qcg.pilotjob.host.records import Ended, Usage
from qcg.pilotjob.host.remote.files import append_lines

NAME = "job.status"
MOST_BYTES = 1 << 24
"""Size of the longest part of a status file that is read."""

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
_UNESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "0": "\0"}

Lines = Iterable[Tuple[str, object]]


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC, with milliseconds."""
    whole = int(seconds)
    return "%s.%03dZ" % (_without_fraction(whole), int((seconds - whole) * 1000))


@lru_cache(maxsize=8)
def _without_fraction(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def format_lines(lines: Lines) -> bytes:
    text = "".join(["%s=%s\n" % (key, _escaped(str(value))) for key, value in lines])
    return text.encode("utf-8", "surrogateescape")


def end_lines(ended: Ended) -> List[Tuple[str, object]]:
    """The lines of the end of an attempt."""
    lines: List[Tuple[str, object]] = []
    if ended.pid or ended.exit_code >= 0:
        lines.append(("SIGNAL", -ended.exit_code) if ended.exit_code < 0 else ("EXIT_CODE", ended.exit_code))
    lines.append(("END_REASON", ended.reason))
    if ended.message:
        lines.append(("END_MESSAGE", ended.message))
    if ended.usage is not None:
        lines.append(("USAGE", " ".join(map(str, ended.usage))))
    lines.append(("ENDED", timestamp(ended.at)))
    return lines


def read_usage(status: Dict[str, Any]) -> Optional[Usage]:
    """The resources that an attempt used; None if they are not in the status file."""
    try:
        return Usage(*map(int, status["USAGE"].split()))
    except (KeyError, ValueError, TypeError):
        return None


def job_id(status: Dict[str, Any]) -> str:
    """The id of the batch job of an attempt; empty when it is not known.

    If it was submitted twice, because the first batch job was not found, this is the one that has started it."""
    return str(status.get("STARTED_JOB_ID") or status.get("JOB_ID", ""))


def append(directory: str, lines: Lines) -> None:
    """Append lines in one write, so that writers do not mix their lines. Raises OSError."""
    append_lines("%s/%s" % (directory, NAME), format_lines(lines))


def read(directory: str) -> Optional[Dict[str, Any]]:
    """The values of a status file by key; those of MESSAGE are a list. None when there is no file.

    The last value of a key counts. A last line without its end is ignored: it is being written.
    """
    try:
        with open("%s/%s" % (directory, NAME), "rb") as file:
            content = file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    values: Dict[str, Any] = {}
    for line in content.decode("utf-8", "replace").split("\n")[:-1]:
        key, equals, value = line.partition("=")
        if not equals:
            continue
        if key == "MESSAGE":
            values.setdefault(key, []).append(_unescaped(value))
        else:
            values[key] = _unescaped(value)
    return values


def _escaped(text: str) -> str:
    if "\n" in text or "\\" in text or "\r" in text or "\0" in text:
        return "".join([_ESCAPES.get(character, character) for character in text])
    return text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: List[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "\\")
            parts.append(_UNESCAPES.get(following, "\\" + following))
        else:
            parts.append(character)
    return "".join(parts)
