"""Lines for whoever looks on. When nobody does any more, jobs go on all the same."""

from __future__ import annotations

import io
import sys
from contextlib import suppress

import click

from qcg.pilotjob.cli.stdout import go_nowhere
from qcg.pilotjob.common.printable import printable_lines


def say(text: str) -> None:
    """Print lines for people. Characters that would steer the terminal are escaped, line breaks stay: a name or a
    message that may hold one goes through `printable` first."""
    say_styled(printable_lines(text))


def say_styled(text: str) -> None:
    """Print text that is safe already, such as a table in colours."""
    any_character()
    try:
        print(text, flush=True)
    except OSError:
        say_no_more()


def tell(text: str) -> None:
    """A word for people, beside the output that programs may read."""
    with suppress(OSError):
        click.echo(printable_lines(text), err=True)


def many(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def say_no_more() -> None:
    """The reader has gone, as `head` does when it has seen enough. From now on nobody is told anything."""
    go_nowhere(sys.stdout.fileno())


def any_character() -> None:
    """From now on what the terminal's encoding cannot show is escaped: a job may have any name."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def on_terminal() -> bool:
    """Whether a person looks on. Without a standard output, nobody does."""
    return sys.stdout is not None and sys.stdout.isatty()
