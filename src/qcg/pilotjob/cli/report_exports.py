"""Options of `qcg-pm report` that write files: the table of attempts."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

from qcg.pilotjob.cli.console import escape_unencodable, on_terminal, silence_stdout
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.safe_open import UnsafeFile, open_output

STDOUT = "-"


class Exports(NamedTuple):
    """The files to write."""

    csv: str | None = None
    parquet: str | None = None

    def __bool__(self) -> bool:
        return any(self)


def export_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: give `exports` to a command."""

    @click.option("--csv", metavar="FILE", help="Write a table of all attempts as CSV; - is standard output.")
    @click.option("--parquet", metavar="FILE", help="Write the same table as Parquet. Needs qcg-pilotjob[parquet].")
    @functools.wraps(command)
    def body(csv: str | None, parquet: str | None, **given: Any) -> None:
        command(exports=Exports(csv, parquet), **given)

    return body


def write_exports(directory: Path, exports: Exports) -> None:
    """Write the files. Raises ReportError and Refusal."""
    from qcg.pilotjob.report.attempt_files import check_parquet, open_attempts, write_csv, write_parquet

    if exports.csv is not None:
        with open_attempts(directory) as found:
            if exports.csv == STDOUT:
                escape_unencodable()
                try:
                    # As they are, names could control the terminal.
                    write_csv(found, sys.stdout, printable if on_terminal() else str)
                    sys.stdout.flush()
                except BrokenPipeError:
                    silence_stdout()
            else:
                with writing(exports.csv) as file, _as_text(file) as text:
                    write_csv(found, text)
    if exports.parquet is not None:
        check_parquet()
        with open_attempts(directory) as found, writing(exports.parquet) as file:
            write_parquet(found, file)


@contextmanager
def writing(path: str) -> Iterator[IO[bytes]]:
    """Open a file named by the user for writing, and refuse with a sentence when it cannot be written."""
    try:
        with os.fdopen(open_output(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            yield file
    except UnsafeFile as unsafe:
        raise Refusal(f"{printable(unsafe.sentence)}.") from None
    except OSError as error:
        raise Refusal(f"{printable(path)} could not be written: {error.strerror or error}.") from None


@contextmanager
def _as_text(file: IO[bytes]) -> Iterator[Any]:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    try:
        yield text
        text.flush()
    finally:
        text.detach()
