"""Options of `qcg-pm report` that write files: the table of attempts, the Gantt chart, and the page."""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

from qcg.pilotjob.cli.console import escape_unencodable, on_terminal, silence_stdout
from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.safe_open import UnsafeFile, open_output
from qcg.pilotjob.runs.manager_process import has_manager

STDOUT = "-"
PICTURES = (".svg", ".png")


class Exports(NamedTuple):
    """The files to write."""

    csv: str | None = None
    parquet: str | None = None
    gantt: str | None = None
    html: str | None = None

    def __bool__(self) -> bool:
        return any(self)


def export_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: give `exports` to a command."""

    @click.option("--csv", metavar="FILE", help="Write a table of all attempts as CSV; - is standard output.")
    @click.option("--parquet", metavar="FILE", help="Write the same table as Parquet. Needs qcg-pilotjob[parquet].")
    @click.option("--gantt", metavar="FILE", help="Draw a Gantt chart: *.svg, or *.png with qcg-pilotjob[plots].")
    @click.option("--html", metavar="FILE", help="Write the page of the dashboard with its data to one file.")
    @functools.wraps(command)
    def body(csv: str | None, parquet: str | None, gantt: str | None, html: str | None, **given: Any) -> None:
        if gantt is not None and not gantt.lower().endswith(PICTURES):
            raise click.UsageError("the name of the file of --gantt must end with .svg or .png")
        command(exports=Exports(csv, parquet, gantt, html), **given)

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
                    write_csv(found, sys.stdout, printable if on_terminal() else None)
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

    if exports.gantt is not None:
        _draw(directory, exports.gantt)
    if exports.html is not None:
        from qcg.pilotjob.dashboard.html_report import html_report

        page = html_report(directory)
        with writing(exports.html) as file:
            file.write(page)


def _draw(directory: Path, path: str) -> None:
    from qcg.pilotjob.report.attempt_files import open_registry
    from qcg.pilotjob.report.gantt import gantt
    from qcg.pilotjob.report.png import check_png, write_png
    from qcg.pilotjob.report.svg import svg_of
    from qcg.pilotjob.report.timeline import Timeline

    as_png = path.lower().endswith(".png")
    if as_png:
        check_png()
    with open_registry(directory) as (connection, run_dir, foreign):
        alive = not foreign and has_manager(run_dir)
        picture = gantt(Timeline.read(connection, time.time() if alive else None), os.fspath(run_dir.absolute()))
    with writing(path) as file:
        if as_png:
            write_png(picture, file)
        else:
            file.write(svg_of(picture).encode())


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
