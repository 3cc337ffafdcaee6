"""The log of an agent."""

from __future__ import annotations

import contextlib
import sys
import time

from qcg.pilotjob.common.printable import printable


def say(line: str) -> None:
    """Write a line to the log. Errors are ignored: a full disk must not stop the agent."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), printable(line), file=sys.stderr, flush=True)
