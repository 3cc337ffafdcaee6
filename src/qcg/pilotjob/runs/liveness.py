"""Whether a run without a manager may have live processes: agents, and attempts on remote hosts."""

from __future__ import annotations

import os
from pathlib import Path

from qcg.pilotjob.agent.pidfile import is_alive as is_agent_alive
from qcg.pilotjob.agent.pidfile import read_agent_pid
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.host.hostname import host_name


def has_agents(run_dir: Path) -> bool | None:
    """Whether an agent of the run is alive; None when that is not known."""
    known: bool | None = False
    checked: dict[AllocationRef, bool | None] = {}
    for path in sorted(run_dir.glob("agent-*.json")):
        found = read_agent_pid(run_dir, path.stem.removeprefix("agent-"))
        if found is None:
            continue
        allocation = AllocationRef(found.allocation, found.cluster, found.batch_system)
        if found.host == host_name():
            alive: bool | None = is_agent_alive(found)
        elif allocation in checked:
            continue
        else:
            alive = checked[allocation] = _is_allocation_active(allocation)
        if alive:
            return True
        known = None if alive is None else known
    return known


def _is_allocation_active(allocation: AllocationRef) -> bool | None:
    if not allocation.id:
        return None
    try:
        return batch_system(allocation.system).state_of(allocation, os.environ) is not AllocationState.OVER
    except ClusterError:
        return None


def hosts_with_attempts(run_dir: Path) -> tuple[str, ...]:
    """The remote hosts on which attempts of a run without a manager may still be running."""
    from qcg.pilotjob.executors.ssh.marker import read_states

    return tuple(name for name, state in read_states(run_dir).items() if state.may_have_attempts)
