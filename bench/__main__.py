"""`python -m bench [NAMES]`. Slow imports happen after the handler of Ctrl-C is installed."""

from __future__ import annotations

import os
import sys


def _enter() -> int:
    # Measure this checkout, not an installed version.
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))
    from qcg.pilotjob.cli.interrupts import ExitOnInterrupt
    from qcg.pilotjob.common.exit_codes import INTERRUPTED

    try:
        with ExitOnInterrupt():
            from bench.command import prepare

            measure = prepare(sys.argv[1:])
        return measure()
    except KeyboardInterrupt:  # between the two handlers of Ctrl-C
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(_enter())
