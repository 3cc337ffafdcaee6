"""`python -m qcg.pilotjob.agent`: the process that runs jobs on one node."""

from __future__ import annotations

import os
import sys

from qcg.pilotjob.common.gc_tuning import loading

with loading():
    from qcg.pilotjob.agent.program import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # its manager waits for this end: no time for the teardown of the interpreter
