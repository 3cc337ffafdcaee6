"""`python -m bench [NAMES]`: `command.py` does it. What takes time to load is loaded once Ctrl-C is taken care of."""

from __future__ import annotations

import os
import sys


def _enter() -> int:
    # What is measured is this checkout, whatever is installed.
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))
    from qcg.pilotjob.cli.interrupts import ExitOnInterrupt
    from qcg.pilotjob.common.exit_codes import INTERRUPTED

    try:
        with ExitOnInterrupt():
            from bench.command import prepare

            measure = prepare(sys.argv[1:])
        return measure()
    except KeyboardInterrupt:  # after the one way to take it, and before the other
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(_enter())
