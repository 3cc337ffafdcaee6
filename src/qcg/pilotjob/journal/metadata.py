"""Run metadata stored in the registry: each key with its type, default and meaning."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.records import DrainedNode
from qcg.pilotjob.journal.errors import JournalError

T = TypeVar("T")
StoredValue = str | int | float | None
"""A cell of the column `value` of the table `meta`."""

SELECT_VALUE = "SELECT value FROM meta WHERE key = ?"
PUT_VALUE = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"


class DamagedMetadata(JournalError):
    """A stored value that no manager has written; the message is the decoder's."""


class NodeSize(msgspec.Struct, frozen=True, kw_only=True):
    """Name and number of cores of a node."""

    name: str = ""
    cores: int


class MetadataKey(Generic[T]):
    """One key of the table `meta`."""

    __slots__ = ("decode", "default", "encode", "name", "valid")

    def __init__(
        self,
        name: str,
        default: T,
        decode: Callable[[StoredValue], T],
        encode: Callable[[T], StoredValue],
        valid: str = "1",
    ) -> None:
        self.name = name
        self.default = default
        """The value in a registry without this key."""
        self.decode = decode
        """Converts a stored value, which is not NULL; raises DamagedMetadata."""
        self.encode = encode
        """Converts a value to store it."""
        self.valid = valid
        """SQL condition on the column `value`: false for values that no manager has written."""

    def read(self, connection: sqlite3.Connection) -> T:
        """Return the value in the registry of this connection."""
        row = connection.execute(SELECT_VALUE, (self.name,)).fetchone()
        return self.default if row is None or row[0] is None else self.decode(row[0])


_COUNT = "(typeof(value) = 'integer' AND value BETWEEN 0 AND 4611686018427387904)"


def _number(name: str, valid: str) -> MetadataKey[int]:
    return MetadataKey(name, 0, lambda stored: int(stored or 0), int, valid)


def _counter(name: str) -> MetadataKey[int]:
    return _number(name, _COUNT)


def _flag(name: str) -> MetadataKey[bool]:
    """Stored as 0 or 1."""
    return MetadataKey(name, False, lambda stored: bool(int(stored or 0)), int, _COUNT)


def _text(name: str) -> MetadataKey[str]:
    """Earlier versions stored 0 for an empty text."""
    valid = "(typeof(value) = 'text' OR value IS NULL OR value = 0)"
    return MetadataKey(name, "", lambda stored: str(stored or ""), str, valid)


def _json(name: str, kind: type[T]) -> MetadataKey[T | None]:
    """A value in JSON; None where it was never stored."""
    decoder = msgspec.json.Decoder(kind)

    def decode(stored: StoredValue) -> T:
        try:
            return decoder.decode(str(stored))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedMetadata(str(error)) from None

    def encode(value: T | None) -> StoredValue:
        return msgspec.json.encode(value).decode()

    return MetadataKey(name, None, decode, encode, "(typeof(value) = 'text' AND json_valid(value))")


# -- the run ------------------------------------------------------------------------------------------------------

INSTANCE = _text("instance")
"""Identifier of the run that its agents know: agents of another run that use the same directory are refused."""
OPTIONS: MetadataKey[Options | None] = _json("options", Options)
"""Options of the latest manager; None when the first manager ended before it stored them."""
RESOURCES: MetadataKey[list[NodeSize] | None] = _json("resources", list[NodeSize])
"""Nodes of the latest manager."""
STARTED_IN_ALLOCATION = _text("allocation")
"""Id of the batch job in which the latest manager was started, whether or not it used its nodes."""
NODES_OF_ALLOCATION = _text("nodes_of_allocation")
"""Id of the batch job whose nodes the latest manager used; empty without one."""
BATCH_SYSTEM = _text("batch_system")
"""Name of the batch system whose nodes the latest manager used; empty without one, and in earlier versions."""
LONGEST_NODE_TIMEOUT = MetadataKey[float](
    "longest_node_timeout",
    0.0,
    lambda stored: float(stored or 0.0),
    float,
    "(typeof(value) IN ('real', 'integer') AND value BETWEEN 0 AND 1e9)",
)
"""The longest `--node-timeout` of all managers of the run, in seconds: agents may still use it."""

DRAINED_NODES: MetadataKey[dict[str, DrainedNode] | None] = _json("drained_nodes", dict[str, DrainedNode])
"""Nodes that get no new jobs, by name, until a user resumes them."""
NOTIFIED: MetadataKey[list[str] | None] = _json("notified", list[str])
"""Numbers of failures of which the user was notified, as in `--notify-on`; None where nobody was to be notified."""

# -- counters -----------------------------------------------------------------------------------------------------

EPOCH = _counter("epoch")
"""Number of managers that have opened the registry."""
HIGHEST_REMOVED_SEQ = _counter("max_seq")
"""Highest sequence number of a removed job: sequence numbers are never given twice."""
SUBMISSIONS = _counter("submissions")
"""Number of submissions, for the variable `${rcnt}`."""
REPORT_SIZE = _number("report_size", "(typeof(value) = 'integer' AND value >= -1)")
"""Length of `jobs.report` in bytes that belongs to the state of the registry; -1 while the report is recovered."""

# -- requests to end ----------------------------------------------------------------------------------------------

FINISH_REQUESTED = _flag("ending")
"""A client sent `finish`. Cleared when the run is resumed."""
FAILURE_LIMIT_REACHED = _flag("failure_limit_reached")
"""The last manager had as many failures as `--stop-after` takes. Cleared when the run is resumed."""
END_WHEN_DONE = _flag("end_when_done")
"""A client sent `finishAfterAllTasksDone`: the manager ends when all jobs are final."""

# -- the request file ---------------------------------------------------------------------------------------------

FILE_REQUESTS_DONE = _counter("file_requests")
"""Number of requests of the file that were carried out, committed together with their effects."""
FILE_REQUESTS_TOTAL = _counter("file_requests_in_all")
"""Number of requests in the file; 0 until it has been read."""
FILE_REQUESTS_REFUSED = _counter("file_requests_refused")
"""Number of requests of the file that were answered with an error."""
FILE_DIGEST = MetadataKey[str]("file_digest", "", lambda stored: str(stored or ""), str)
"""SHA-256 of the request file when the run began with it; empty for a pipe."""

KEYS: list[MetadataKey[Any]] = [value for value in list(globals().values()) if isinstance(value, MetadataKey)]
