"""`python -m qcg.pilotjob.cluster.watchdog`: ends an agent that the batch system does not end itself.

While no manager is there, it asks from time to time whether the allocation is over, and ends the agent then. It is a
process of its own: a batch system may take minutes to answer, and the agent waits for all its children itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from qcg.pilotjob.agent.log import say
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.common.parent_death import die_with_parent
from qcg.pilotjob.wire.contact import ContactError, read_stamped

EVERY = 20.0
"""Seconds between two questions. A manager touches its contact file every few seconds."""
LATE = 60.0
"""Seconds after the end that was known at the beginning, for an allocation whose state is not known any more. Where the
limit was raised, the batch system can tell the state."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.cluster.watchdog")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--until", type=float, default=None)
    parser.add_argument("--agent", type=int, required=True)
    parser.add_argument("--allocation", required=True)
    parser.add_argument("--cluster", default="")
    parser.add_argument("--batch-system", default="")
    options = parser.parse_args()
    die_with_parent()
    allocation = AllocationRef(options.allocation, options.cluster, options.batch_system)
    touched = _touched(options.run_dir)
    while os.getppid() == options.agent:
        time.sleep(EVERY)
        before, touched = touched, _touched(options.run_dir)
        if (touched is None or touched == before) and is_over(allocation, options.until):
            os.kill(options.agent, signal.SIGTERM)
            return


def is_over(allocation: AllocationRef, until: float | None) -> bool:
    """Whether the allocation has ended, or is about to. `until`: its end as it was known at the start."""
    try:
        over = batch_system(allocation.system).state_of(allocation, os.environ) is not AllocationState.ACTIVE
    except ClusterError as error:
        over = until is not None and time.time() > until + LATE
        if over:
            say(str(error))
    if over:
        say(f"allocation {allocation.id} is over")
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
