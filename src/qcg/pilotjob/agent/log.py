"""The log of an agent."""

from __future__ import annotations

import contextlib
import sys
import time

from qcg.pilotjob.common.printable import printable


def say(line: str) -> None:
    """To the log. When even that cannot be written, jobs matter more."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), printable(line), file=sys.stderr, flush=True)
