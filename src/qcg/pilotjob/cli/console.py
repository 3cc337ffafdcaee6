"""Console output that tolerates a closed stdout: jobs continue when nobody reads the output any more."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

import click

from qcg.pilotjob.cli.stdout import redirect_to_devnull
from qcg.pilotjob.common.printable import printable_lines
from qcg.pilotjob.common.styled_lines import BOLD, Line, plain_text


def echo(text: str) -> None:
    """Print lines to stdout with control characters escaped. Line breaks stay: a name or a message that may hold line
    breaks goes through `printable` first."""
    echo_styled(printable_lines(text))


def echo_styled(text: str) -> None:
    """Print text to stdout unchanged, such as a table in colours. The caller has escaped control characters."""
    escape_unencodable()
    try:
        print(text, flush=True)
    except OSError:
        silence_stdout()


def echo_lines(lines: Iterable[Line]) -> None:
    """Print lines to stdout, in their styles on a terminal that has colours."""
    if on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        echo_styled("\n".join(map(_styled, lines)))
    else:
        echo_styled(plain_text(lines).removesuffix("\n"))


def _styled(line: Line) -> str:
    if line.style == BOLD:
        return click.style(line.text, bold=True)
    return click.style(line.text, fg=line.style) if line.style else line.text


def echo_err(text: str) -> None:
    """Print lines to stderr, for messages beside the output that programs read."""
    with suppress(OSError):
        click.echo(printable_lines(text), err=True)


def silence_stdout() -> None:
    """Discard all further output, because its reader is gone, such as `head` after its last line."""
    redirect_to_devnull(sys.stdout.fileno())


def escape_unencodable() -> None:
    """Escape characters that the encoding of stdout cannot represent: a job may have any name."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
