"""The table of attempts as CSV and Parquet, and as records or a data frame in Python."""

from __future__ import annotations

import contextlib
import csv
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import IO, TYPE_CHECKING, Any, TextIO, Union, get_args, get_origin, get_type_hints

from msgspec.structs import astuple

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.analysis import run_of
from qcg.pilotjob.report.attempt_table import TIMES, AttemptRow, read_attempts
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.rows.store import DIRECTORY as ROWS
from qcg.pilotjob.rows.store import RowFiles
from qcg.pilotjob.runs.discovery import RunsError

if TYPE_CHECKING:
    import pandas

COLUMNS = AttemptRow.__struct_fields__
BATCH = 20_000
"""Rows that are written to a Parquet file at a time."""
NO_PYARROW = "Parquet needs the package pyarrow; install it with: pip install 'qcg-pilotjob[parquet]'"
NO_PANDAS = "A data frame needs the package pandas; install it with: pip install pandas"


@contextlib.contextmanager
def open_registry(path: Path) -> Iterator[tuple[sqlite3.Connection, Path, bool]]:
    """A connection to the registry of a run, its run directory, and whether it belongs to another user.

    `path`: a run directory, or a working directory, whose newest run is read. Raises ReportError.
    """
    try:
        run_dir, foreign = run_of(path)
        with snapshot(run_dir / FILE_NAME, foreign=foreign) as connection:
            yield connection, run_dir, foreign
    except (JournalError, RunsError) as error:
        raise ReportError(str(error)) from error


@contextlib.contextmanager
def open_attempts(path: Path) -> Iterator[Iterator[AttemptRow]]:
    """The attempts of a run; `path` as in `open_registry`."""
    with open_registry(path) as (connection, run_dir, foreign):
        directory = run_dir.absolute()
        # The registry of another user's run may name any file, including private files of the caller.
        rows = None if foreign else RowFiles(os.fspath(directory.parent), os.fspath(directory / ROWS)).row
        # Close the rows before their connection, even if the caller has not read all of them.
        with contextlib.closing(read_attempts(connection, rows)) as found:
            yield found


def attempts(path: str | os.PathLike[str]) -> list[AttemptRow]:
    """The attempts of a run: of a run directory, or of the newest run in a working directory."""
    with open_attempts(Path(path)) as found:
        return list(found)


def attempts_frame(path: str | os.PathLike[str]) -> pandas.DataFrame:
    """The attempts of a run as a pandas data frame: a row for each attempt, times as timestamps in UTC."""
    try:
        import pandas
    except ImportError:
        raise ReportError(f"{NO_PANDAS}.") from None
    with open_attempts(Path(path)) as found:
        values = {name: list(column) for name, column in zip(COLUMNS, _columns(found), strict=True)}
    frame = pandas.DataFrame(values, columns=list(COLUMNS))
    for name in TIMES:
        frame[name] = pandas.to_datetime(frame[name], unit="s", utc=True)
    for name, kind in _kinds().items():
        # Integers stay integers where some are not known.
        frame[name] = frame[name].astype({int: "Int64", float: "float64"}.get(kind, "object"))
    return frame


def write_csv(found: Iterable[AttemptRow], file: TextIO, shown: Callable[[str], str] | None = None) -> None:
    """Write a head line and a line for each attempt. Times are ISO 8601 in UTC; unknown values are empty.

    `shown`: converts texts, such as names, that would control a terminal.
    """
    writer = csv.writer(_UnixLines(file))
    writer.writerow(COLUMNS)
    times = [COLUMNS.index(name) for name in TIMES]
    for row in found:
        cells: list[Any] = list(astuple(row))
        if shown is not None:
            cells = [shown(cell) if isinstance(cell, str) else cell for cell in cells]
        for index in times:
            cells[index] = iso_utc(cells[index])
        writer.writerow(cells)


class _UnixLines:
    """Ends lines with a line feed alone. The writer quotes carriage returns only when its own lines end with them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(f"{line[:-2]}\n")


def check_parquet() -> None:
    """Raise ReportError unless Parquet files can be written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ReportError(f"{NO_PYARROW}.") from None


def write_parquet(found: Iterable[AttemptRow], file: IO[bytes]) -> None:
    """Write a Parquet file, some thousand rows at a time. Raises ReportError without pyarrow."""
    check_parquet()
    import pyarrow
    from pyarrow import parquet

    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    kinds = {name: types[kind] for name, kind in _kinds().items()}
    schema = pyarrow.schema(
        [(name, pyarrow.timestamp("us", tz="UTC") if name in TIMES else kinds[name]) for name in COLUMNS]
    )
    rows = iter(found)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            columns = [
                [None if at is None else round(at * 1_000_000) for at in column] if name in TIMES else column
                for name, column in zip(COLUMNS, _columns(batch), strict=True)
            ]
            arrays = [pyarrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def iso_utc(at: float | None) -> str:
    """`2026-01-31T16:02:27.740711Z`; empty for None."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _columns(found: Iterable[AttemptRow]) -> list[tuple[Any, ...]]:
    return list(zip(*map(astuple, found), strict=True)) or [() for _ in COLUMNS]


def _kinds() -> dict[str, type]:
    """The type of each column, without None; times are left out."""
    kinds = {}
    for name, hint in get_type_hints(AttemptRow).items():
        if name not in TIMES:
            optional = get_origin(hint) in (Union, UnionType)
            kinds[name] = next(kind for kind in get_args(hint) if kind is not type(None)) if optional else hint
    return kinds
