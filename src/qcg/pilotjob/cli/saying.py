"""Lines for whoever looks on. When nobody does any more, jobs go on all the same."""

from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        say_no_more()


def say_no_more() -> None:
    """The reader has gone, as `head` does when it has seen enough. From now on nobody is told anything."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def on_terminal() -> bool:
    """Whether a person looks on. Without a standard output, nobody does."""
    return sys.stdout is not None and sys.stdout.isatty()
