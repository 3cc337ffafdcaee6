"""The iterations of a job: their indices, and the value that each of them has.

The journal stores `Iteration`: field names are part of the format of a run directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Union

import msgspec
from msgspec import Struct

from qcg.pilotjob.description.limits import SubstitutionError


class RowError(SubstitutionError):
    """A row of a parameter file that cannot be used; the message continues "it cannot be started:"."""


class IndexList:
    """Distinct indices in any order, with the methods of `range` that iterations need."""

    __slots__ = ("_numbers", "_positions", "start", "step", "stop")

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._positions: dict[int, int] | None = None
        self.start = min(numbers)
        self.stop = max(numbers) + 1
        self.step = 1

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, position: int) -> int:
        return self._numbers[position]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __contains__(self, index: object) -> bool:
        return index in self._found()

    def index(self, index: int) -> int:
        """The position of an index."""
        return self._found()[index]

    def _found(self) -> dict[int, int]:
        if self._positions is None:
            self._positions = {number: position for position, number in enumerate(self._numbers)}
        return self._positions


Indices = Union[range, IndexList]


class RowFile(Struct, frozen=True, omit_defaults=True, gc=False):
    """A file of parameters, one row for each iteration, as it was when the job was submitted."""

    path: str
    """Absolute path."""
    rows: int
    columns: tuple[str, ...]
    """Names of the columns of a CSV file, or the keys of the objects of a JSON-lines file."""
    digest: str = ""
    """Digest of the index of its rows, which is also the name of the index in the run directory."""
    size: int = 0
    """Bytes."""
    modified: int = 0
    """Time of the last change, in nanoseconds since the epoch."""
    content: str = ""
    """Digest of its content, which is also the name of its copy in the run directory; empty when no copy was kept."""
    before: RowFile | None = None
    """The file of the attempts that were scheduled before `since`; None when all attempts have these rows."""
    since: float = 0.0
    """When this file replaced the one before it, in seconds since the epoch."""
    padded: str = ""
    """The first column whose value in the first row begins or ends with blanks; empty without one."""

    def at(self, scheduled: float) -> RowFile:
        """The file of an attempt that was scheduled at this time."""
        file = self
        while file.before is not None and scheduled < file.since:
            file = file.before
        return file


RowSource = Callable[[RowFile, int], dict[str, Any]]
"""Returns the row at a position as names with values; raises RowError."""


class Iteration(Struct, frozen=True, omit_defaults=True, gc=False):
    """The iterations of a job. Those with values have the indices 0, 1, 2 and so on."""

    start: int
    stop: int
    step: int = 1
    values: tuple[Any, ...] | None = None
    """JSON values by index; None if the value is the index itself, or comes from `names` or `rows`."""
    listed: tuple[int, ...] | None = None
    """Indices that are no range; `start` and `stop` enclose them."""
    names: dict[str, tuple[Any, ...]] | None = None
    """The JSON values of each name. All names have equally many, unless `crossed`."""
    crossed: bool = False
    """Whether there is an iteration for each combination of the values of `names`; the last name changes first."""
    rows: RowFile | None = None
    """The file with the values."""

    def indices(self) -> Indices:
        return range(self.start, self.stop, self.step) if self.listed is None else IndexList(self.listed)

    def index(self, position: int) -> int:
        """The index of the iteration at a position."""
        return self.start + position * self.step if self.listed is None else self.listed[position]

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step)) if self.listed is None else len(self.listed)

    @property
    def has_values(self) -> bool:
        """Whether iterations have values other than their indices."""
        return self.values is not None or self.names is not None or self.rows is not None

    def value(self, index: int, rows: RowSource | None = None, scheduled: float | None = None) -> Any:
        """The JSON value of the iteration with an index. `rows`: reads the rows of a file; RowError without it.

        `scheduled`: the time of the attempt that had the value; None for the value of the next attempt."""
        if self.values is not None:
            return self.values[index]
        if self.names is not None:
            return {name: self._named(name, index) for name in self.names}
        if self.rows is None:
            return index
        if rows is None:
            raise RowError(f"the rows of {self.rows.path} cannot be read here")
        return rows(self.rows if scheduled is None else self.rows.at(scheduled), index)

    def variable(self, name: str, index: int, rows: RowSource | None = None) -> str | None:
        """The text of `${itval}`, or of a variable named by the user: `${T}`, `${row.T}`, `${itval.T}`.

        None for other names.
        """
        if name == "itval":
            return text_of(self.value(index, rows))
        if self.names is not None and name in self.names:
            return text_of(self._named(name, index))
        head, _, key = name.partition(".")
        if not key or (head == "row" and self.rows is None) or head not in HEADS:
            return None
        found = member(self.value(index, rows), key)
        return None if found is MISSING else text_of(found)

    def _named(self, name: str, index: int) -> Any:
        assert self.names is not None
        if not self.crossed:
            return self.names[name][index]
        for other in reversed(self.names):
            values = self.names[other]
            if other == name:
                return values[index % len(values)]
            index //= len(values)
        raise KeyError(name)


HEADS = frozenset({"row", "itval"})
"""Variables whose members can be named: `${row.T}`."""
MISSING: Any = object()
"""Stands for a member that does not exist; None is a JSON value."""


def member(value: Any, key: str) -> Any:
    """A member of a JSON object: the value of `key`, or of `a` and then `b` for the key `a.b`."""
    if not isinstance(value, dict):
        return MISSING
    if key in value:
        return value[key]
    head, dot, rest = key.partition(".")
    return member(value[head], rest) if dot and head in value else MISSING


def text_of(value: Any) -> str:
    """A JSON value as the text of a variable: strings and numbers as they are, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value).decode()
