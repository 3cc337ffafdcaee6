"""Live agents of runs without a manager."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.agent.pidfile import AgentPid, write_agent_pid
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.runs import liveness


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocation 7 is over, allocation 8 is active, and the state of others is not known."""

    def state_of(allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        if allocation.id not in ("7", "8"):
            raise ClusterError("not known")
        return AllocationState.OVER if allocation.id == "7" else AllocationState.ACTIVE

    monkeypatch.setattr(batch_system(), "state_of", state_of)


def an_agent(run_dir: Path, name: str, allocation: str, host: str = "far", pid: int = 1) -> None:
    found = AgentPid(pid, 1, host, allocation, "big")
    (run_dir / f"agent-{name}.json").write_bytes(msgspec.json.encode(found))


@pytest.mark.parametrize(
    ("allocations", "at_work"),
    [([], False), (["7", "7"], False), (["7", "8"], True), (["9", "8"], True), (["7", "9"], None), ([""], None)],
)
def test_agents_on_other_hosts_live_as_long_as_their_allocation(
    allocations: list[str], at_work: bool | None, tmp_path: Path
):
    for number, allocation in enumerate(allocations):
        an_agent(tmp_path, f"n{number}", allocation)
    assert liveness.has_agents(tmp_path) is at_work


def test_an_agent_on_this_host_lives_as_long_as_its_process(tmp_path: Path):
    an_agent(tmp_path, "n1", "8", socket.gethostname(), os.getpid())
    assert liveness.has_agents(tmp_path) is False
    write_agent_pid(tmp_path, "n1")
    assert liveness.has_agents(tmp_path) is True
