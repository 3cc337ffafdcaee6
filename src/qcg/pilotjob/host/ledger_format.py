"""The format of a ledger: the one place that knows how its lines are written and read.

A ledger is a text file with one JSON array a line, only ever appended to:

    ["h", boot id, version]                                 header, written each time the ledger is opened
    ["b", id, marker, grant]                                about to be started: from here on the job may have run
    ["s", number, id, pid, at, grant, since, until]         Started, and the clock ticks around the start
    ["e", number, id, at, exit code, reason, message, pid, started, grant, usage]       Ended; usage may be missing
    ["x", id, pid, started, at, usage]                      succeeded, written by the relay in C; gets no number here
    ["a", number]                                           records up to this one are in the manager's journal
    ["n", number, shift]                                    add `shift` to the numbers of records above this one

Each write begins with a new line, because a full disk may have cut off the end of the write before: a line is whole, or
is skipped by the reader.

Version 1 had no version in its header, and its first releases wrote no grants. Version 2 wrote no usage. `read_line`
reads these lines too.
"""

import functools
import json
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from qcg.pilotjob.host.records import Ended, NodeGrant, Started, Usage

VERSION = 3
"""To be raised with every change that an earlier version could not read."""

SUCCEEDED = '["x",%s,%d,%.6f,%.6f,[%ld,%ld,%ld,%ld,%ld,%ld,%ld]]\n'
"""Id as JSON, pid, start, end and the fields of `Usage`. The relay in C is compiled with the same text, and is refused
if it differs."""


class UnknownVersion(Exception):
    """The ledger was written by a later version of this program."""


def header_line(boot_id: str) -> str:
    return '["h",%s,%d]\n' % (quoted(boot_id), VERSION)


def starting_line(id: str, marker: str, grant: List[NodeGrant]) -> str:
    return '["b",%s,%s,%s]\n' % (quoted(id), quoted(marker), _grant_text(tuple(grant)))


def started_line(number: int, body: Started, since: int, until: int) -> str:
    grant = _grant_text(tuple(body.grant))
    return '["s",%d,%s,%d,%r,%s,%d,%d]\n' % (number, quoted(body.id), body.pid, body.at, grant, since, until)


def ended_line(number: int, body: Ended) -> str:
    return '["e",%d,%s,%r,%d,%s,%s,%d,%r,%s%s]\n' % (
        number,
        quoted(body.id),
        body.at,
        body.exit_code,
        quoted(body.reason),
        quoted(body.message),
        body.pid,
        body.started,
        _grant_text(tuple(body.grant)),
        "" if body.usage is None else ",[%d,%d,%d,%d,%d,%d,%d]" % body.usage,
    )


def acknowledged_line(number: int) -> str:
    return '["a",%d]\n' % number


def renumbered_line(above: int, shift: int) -> str:
    return '["n",%d,%d]\n' % (above, shift)


@functools.lru_cache(maxsize=4096)
def _grant_text(grant: Tuple[NodeGrant, ...]) -> str:
    """Cached, because the same few grants occur again and again."""
    return json.dumps(grant, separators=(",", ":"))


class Header(NamedTuple):
    boot_id: str


class Starting(NamedTuple):
    id: str
    marker: str
    grant: List[NodeGrant]


class StartedLine(NamedTuple):
    number: int
    """0 for a start whose record was acknowledged."""
    body: Started
    since: int
    until: int


class EndedLine(NamedTuple):
    number: int
    body: Ended


class Succeeded(NamedTuple):
    id: str
    pid: int
    started: float
    at: float
    usage: Optional[Usage] = None


class Acknowledged(NamedTuple):
    number: int


class Renumbered(NamedTuple):
    above: int
    shift: int


def read_line(line: bytes) -> Any:
    """One of the tuples above. ValueError, LookupError or TypeError for a damaged line."""
    fields = json.loads(line.decode("ascii", "replace"))
    kind, rest = fields[0], fields[1:]
    if kind == "h":
        version = rest[1] if len(rest) > 1 else 1
        if version > VERSION:
            raise UnknownVersion(version)
        return Header(rest[0])
    if kind == "b":
        id, marker, *grant = rest
        return Starting(id, marker, _grant(*grant))
    if kind == "s":
        number, id, pid, at, grant, since, until = rest
        return StartedLine(number, Started(id, pid, at, _grant(grant)), since, until)
    if kind == "e":
        number, id, at, exit_code, reason, message, pid, started, *more = rest
        body = Ended(id, at, exit_code, reason, message, pid, started, _grant(*more[:1]), *map(_usage, more[1:]))
        return EndedLine(number, body)
    if kind == "x":
        return Succeeded(*rest[:4], *map(_usage, rest[4:]))
    if kind == "a":
        return Acknowledged(*rest)
    if kind == "n":
        return Renumbered(*rest)
    raise ValueError(kind)


def _grant(read: Sequence[Any] = ()) -> List[NodeGrant]:
    return [(node, tuple(cores), tuple(gpus)) for node, cores, gpus in read]


def _usage(read: Sequence[int]) -> Usage:
    return Usage(*map(int, read))
