"""`python -m qcg.pilotjob.agent.allocation_watchdog`: ends an agent that the batch system does not end itself.

While no manager is there, it asks seldom whether the allocation is over, and ends the agent then. A process of its own:
Slurm may take minutes to answer, and the agent takes in all its children itself.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from qcg.pilotjob.agent.log import say
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.fate import Fate, fate_of
from qcg.pilotjob.wire.contact import ContactError, read_stamped

EVERY = 20.0
"""Seconds between two questions. A manager touches its contact file every few seconds."""
LATE = 60.0
"""Seconds after the end that was known at the beginning, for an allocation of which Slurm tells nothing: its limit may
have been raised, but then it tells."""
PR_SET_PDEATHSIG = 1
"""Of Linux."""


def start(run_dir: Path, until: float | None) -> None:
    command = [sys.executable, "-m", "qcg.pilotjob.agent.allocation_watchdog", "--run-dir", str(run_dir)]
    command += [] if until is None else ["--until", f"{until:.0f}"]
    os.posix_spawn(sys.executable, [*command, "--agent", str(os.getpid())], os.environ, setsigmask=())


def main() -> None:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.agent.allocation_watchdog")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--until", type=float, default=None)
    parser.add_argument("--agent", type=int, required=True)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    touched = _touched(options.run_dir)
    while os.getppid() == options.agent:
        time.sleep(EVERY)
        before, touched = touched, _touched(options.run_dir)
        if (touched is None or touched == before) and is_over(options.until):
            os.kill(options.agent, signal.SIGTERM)
            return


def is_over(until: float | None) -> bool:
    """Whether the allocation that this process is in has ended, or is about to."""
    allocation = os.environ.get("SLURM_JOB_ID", "")
    try:
        over = fate_of(allocation, os.environ.get("SLURM_CLUSTER_NAME", ""), os.environ) is not Fate.AT_WORK
    except ClusterError as error:
        over = until is not None and time.time() > until + LATE
        if over:
            say(str(error))
    if over:
        say(f"allocation {allocation} is over")
    return over


def _touched(run_dir: Path) -> int | None:
    """When a manager has last touched the contact file; None without one."""
    try:
        found = read_stamped(run_dir)
    except ContactError:
        return None
    return found[1] if found else None


if __name__ == "__main__":
    main()
