"""The formats of parameter files: the names of a row, its problems, and its values."""

from __future__ import annotations

import csv
import io
import re
from functools import lru_cache
from itertools import repeat
from typing import Any, Protocol

import msgspec

from qcg.pilotjob.description.errors import one_line, quoted
from qcg.pilotjob.description.json_input import InvalidJson
from qcg.pilotjob.description.validation import find_nul_characters

_FIELD = rb'(?:"[^"]*(?:""[^"]*)*"|[^",\r\n]*)'
_RECORD = re.compile(rb"%b(?:,%b)*" % (_FIELD, _FIELD))
"""A row of a CSV file in which every quote is in its place."""
_BEGIN = re.compile(rb'(?:%b,)*"[^"]*(?:""[^"]*)*' % _FIELD)
"""The first line of a row whose last value continues in the next line."""
_OUT_OF_PLACE = (
    "a quote or a line break is out of place; a value that has one is written in quotes, and quotes in it are doubled:"
    ' "a ""b"" c"'
)
_LONGEST_NAME = 60
_MOST_NAMES = 20
"""Names of columns that a message lists."""


class BadRow(Exception):
    """A row that cannot be used. The message continues "FILE, line 7: "."""


class RowFormat(Protocol):
    """How the rows of one file are read. Rows come as bytes of valid UTF-8 without the line break at their end."""

    has_header: bool
    """Whether the first row has the names and no values."""

    def columns_of(self, first: bytes) -> tuple[str, ...]:
        """The names in the first row of a file; an empty name is of a column that has none."""

    def opens(self, line: bytes) -> bool:
        """Whether the row that begins with this line continues in the next one; raises BadRow when it is wrong."""

    def closes(self, line: bytes) -> bool:
        """Whether this line is the last one of a row that began in an earlier one."""

    def check(self, row: bytes, columns: tuple[str, ...]) -> None:
        """Raise BadRow when a row is wrong."""

    def are_correct(self, rows: list[bytes], columns: tuple[str, ...]) -> bool:
        """Whether all rows are known to be correct without a check of each row."""

    def correct_rows(self, block: bytes, columns: tuple[str, ...]) -> list[tuple[int, int]]:
        """Begin and end of correct rows at the start of a block of whole lines: as far as a quick check shows."""

    def parse(self, row: bytes, columns: tuple[str, ...]) -> dict[str, Any]:
        """The values of a row that was checked before."""


class Csv:
    """Comma-separated values as in RFC 4180, with the names of the columns in the first row."""

    has_header = True

    def columns_of(self, first: bytes) -> tuple[str, ...]:
        names = tuple([name.strip() for name in _fields(first)])
        if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
            raise BadRow("the columns must be separated by commas")
        given = [name for name in names if name]
        if not given:
            raise BadRow("the first line must have the names of the columns")
        if twice := [name for name in given if given.count(name) > 1]:
            raise BadRow(f"the column {quoted(twice[0])} is there twice")
        return names

    def opens(self, line: bytes) -> bool:
        if line.count(b'"') % 2 == 0:
            return False
        if not _BEGIN.fullmatch(line):
            raise BadRow(_OUT_OF_PLACE)
        return True

    def closes(self, line: bytes) -> bool:
        return line.count(b'"') % 2 == 1

    def check(self, row: bytes, columns: tuple[str, ...]) -> None:
        found = len(_fields(row))
        if found != len(columns):
            values = "1 value" if found == 1 else f"{found} values"
            names = ", ".join([one_line(name[:_LONGEST_NAME]) or '""' for name in columns[:_MOST_NAMES]])
            more = ", …" if len(columns) > _MOST_NAMES else ""
            raise BadRow(f"has {values}; the file has {len(columns)} columns: {names}{more}")

    def are_correct(self, rows: list[bytes], columns: tuple[str, ...]) -> bool:
        return set(map(bytes.count, rows, repeat(b","))) == {len(columns) - 1}

    def correct_rows(self, block: bytes, columns: tuple[str, ...]) -> list[tuple[int, int]]:
        rows = []
        end = 0
        for match in _rows_of(len(columns)).finditer(block):
            if match.start() != end or match.end(1) == end:
                break
            rows.append(match.span(1))
            end = match.end()
        return rows

    def parse(self, row: bytes, columns: tuple[str, ...]) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip(columns, _fields(row), strict=True))
        # Programs that number the rows write a first column without a name.
        values.pop("", None)
        return values


@lru_cache(maxsize=16)
def _rows_of(columns: int) -> re.Pattern[bytes]:
    """Matches rows with so many columns, in groups without the line break."""
    return re.compile(rb"(%b(?:,%b){%d})\r?\n" % (_FIELD, _FIELD, columns - 1))


def _fields(row: bytes) -> list[str]:
    text = row.decode()
    if b'"' not in row and b"\r" not in row:
        return text.split(",")
    if row.count(b'"') % 2:
        raise BadRow("a quote is not closed")
    if not _RECORD.fullmatch(row):
        raise BadRow(_OUT_OF_PLACE)
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise BadRow(str(error)) from None


class JsonLines:
    """One JSON object a line; all of them have the keys of the first one."""

    has_header = False

    def columns_of(self, first: bytes) -> tuple[str, ...]:
        return tuple(_object(first))

    def opens(self, line: bytes) -> bool:
        return False

    def closes(self, line: bytes) -> bool:
        return True

    def check(self, row: bytes, columns: tuple[str, ...]) -> None:
        values = _object(row)
        if values.keys() == set(columns):
            return
        for name in columns:
            if name not in values:
                raise BadRow(f"has no {quoted(name)}, as the first row has")
        extra = next(name for name in values if name not in columns)
        raise BadRow(f"has {quoted(extra)}, which the first row has not")

    def are_correct(self, rows: list[bytes], columns: tuple[str, ...]) -> bool:
        names = set(columns)
        try:
            return all(type(value) is dict and value.keys() == names for value in map(_decode, rows))
        except (msgspec.DecodeError, RecursionError):
            return False  # the caller finds out which row is wrong

    def correct_rows(self, block: bytes, columns: tuple[str, ...]) -> list[tuple[int, int]]:
        return []

    def parse(self, row: bytes, columns: tuple[str, ...]) -> dict[str, Any]:
        return _object(row)


_decode = msgspec.json.Decoder().decode


def _object(row: bytes) -> dict[str, Any]:
    try:
        value = _decode(row)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRow(f"it {InvalidJson.because(error)}") from None
    if not isinstance(value, dict):
        raise BadRow('must be an object, such as {"T": 300, "p": 1}')
    if not value:
        raise BadRow("the object has no keys")
    if b"\\u0000" in row and find_nul_characters(value, ""):
        raise BadRow("holds a NUL character")
    return value


FORMATS: dict[str, RowFormat] = {".csv": Csv(), ".jsonl": JsonLines(), ".ndjson": JsonLines()}
"""Formats by the ending of the file name."""


def format_of(path: str) -> RowFormat | None:
    """The format of a file by the ending of its name, in any case."""
    return next((found for ending, found in FORMATS.items() if path.lower().endswith(ending)), None)
