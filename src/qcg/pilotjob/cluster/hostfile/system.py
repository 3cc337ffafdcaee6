"""Hosts of a file as a source of nodes: agents are started by `ssh`, and there is neither a queue nor a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart, SshStart, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation, AllocationState, BatchSystem
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.hostfile.parse import parse_hosts
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.launch.site import MultiNode

NAME = "hostfile"


class Hostfile(BatchSystem):
    """Hosts of a file, reached by `ssh`."""

    name = NAME
    label = "the host file"
    start_hint = "name a file that lists hosts"

    def allocation_ref(self, environ: Mapping[str, str]) -> AllocationRef | None:
        return None

    def find_allocation(self, environ: Mapping[str, str], argument: str = "") -> Allocation:
        try:
            text = Path(argument).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
            raise ClusterError(f"--resources hostfile:{argument}: the file cannot be read: {reason}") from None
        hosts = parse_hosts(text, argument)
        return Allocation(
            ref=AllocationRef(system=NAME),
            specs=[NodeSpec(host.name, tuple(range(host.cores)), counters=host.counters) for host in hosts],
            addresses={host.name: host.name for host in hosts},
            logins={host.name: host.login for host in hosts if host.login != host.name},
        )

    def end_time(self, environ: Mapping[str, str], patience: float) -> float | None:
        return None

    def state_of(self, allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        return AllocationState.ACTIVE

    def agent_start(self, method: StartMethod, agent: AgentCommand, environ: Mapping[str, str]) -> AgentStart:
        return SshStart(agent, environ)

    def multi_node(self) -> MultiNode:
        return MultiNode(
            openmpi={"OMPI_MCA_plm": "rsh"},
            openmpi_hosts=True,
            no_steps="the hosts of a file have no batch system",
            hydra={"HYDRA_LAUNCHER": "ssh", "I_MPI_HYDRA_BOOTSTRAP": "ssh"},
        )


SYSTEM = Hostfile()
