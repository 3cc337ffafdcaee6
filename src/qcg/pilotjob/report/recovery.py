"""Recovery of a `jobs.report` that a crash of the machine cut short or filled with zeros."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

TAIL = 1 << 20
"""Bytes at the end of a report in which its last entry is looked for."""

_HEADER = re.compile(rb"^(?P<name>[^\s\0].*) \((?P<state>SUCCEED|FAILED|CANCELED|OMITTED)\)\n", re.MULTILINE)
_SECONDS = re.compile(rb"\d\d\.\d{6}")


class Key(NamedTuple):
    """Identifies an entry. A name is not enough: after a job was removed, another job may get its name."""

    name: bytes
    state: bytes
    ended: bytes
    """The seconds of the end time, which are the same in all time zones."""


class Entry(NamedTuple):
    start: int
    """Offset of the entry in the report."""
    text: bytes
    key: Key | None
    """None when the entry is damaged."""


class _Step(msgspec.Struct):
    state: str
    date: str


class _Line(msgspec.Struct):
    name: str
    state: str
    history: list[_Step]


_decode = msgspec.json.Decoder(_Line).decode


def key_of(entry: bytes) -> Key | None:
    """The key of one entry in either format; None when the entry is damaged."""
    if b"\0" in entry or not entry.endswith(b"\n"):
        return None
    return _key_of_line(entry) if entry.startswith(b"{") else _key_of_block(entry)


def entries_of(report: bytes) -> Iterator[Entry]:
    """All entries in order. Bytes between two entries belong to the first of them."""
    starts = sorted({0, *(match.start() for match in _HEADER.finditer(report)), *_line_starts(report)})
    for start, end in zip(starts, [*starts[1:], len(report)], strict=True):
        if start < end:
            text = report[start:end]
            yield Entry(start, text, key_of(text))


def ends_whole(tail: bytes) -> bool:
    """Whether the last entry of a report seems complete."""
    entries = list(entries_of(tail))
    return bool(entries) and entries[-1].key is not None


def _line_starts(report: bytes) -> Iterator[int]:
    """Offsets at which a JSON entry, or the rest of one, starts."""
    return (match.start() for match in re.finditer(rb"^\{", report, re.MULTILINE))


def _key_of_line(entry: bytes) -> Key | None:
    try:
        line = _decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not line.history or line.history[-1].state != line.state:
        return None
    ended = _SECONDS.search(line.history[-1].date.encode())
    return Key(line.name.encode(), line.state.encode(), ended[0] if ended else b"")


def _key_of_block(entry: bytes) -> Key | None:
    header = _HEADER.match(entry)
    if header is None:
        return None
    state = header["state"]
    ended = re.search(rb"^    (\d[^\n]*): " + state + rb"\n", entry, re.MULTILINE)
    if ended is None:
        return None
    seconds = _SECONDS.search(ended[1])
    return Key(header["name"], state, seconds[0] if seconds else b"")
