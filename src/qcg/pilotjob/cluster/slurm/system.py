"""Slurm as a batch system of the port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation, AllocationState, BatchSystem
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.remote_queue import RemoteQueue
from qcg.pilotjob.cluster.slurm import allocation, scontrol
from qcg.pilotjob.cluster.slurm.agents import SrunStart, ssh_start
from qcg.pilotjob.cluster.slurm.environment import NOT_FOR_JOBS, SCHEMA, hidden_outside_allocation
from qcg.pilotjob.cluster.slurm.multinode import MULTI_NODE
from qcg.pilotjob.cluster.slurm.queue import LABEL, SlurmQueue
from qcg.pilotjob.cluster.slurm.remote import remote_queue
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.launch.site import MultiNode


class Slurm(BatchSystem):
    """Slurm, used through its commands."""

    name = allocation.NAME
    label = LABEL
    queue = SlurmQueue()
    schema = SCHEMA
    signals_all_processes = True
    address_hint = ", and NodeAddr in `scontrol show node`"
    start_hint = "start inside sbatch or salloc"

    def allocation_ref(self, environ: Mapping[str, str]) -> AllocationRef | None:
        return allocation.allocation_ref(environ)

    def find_allocation(self, environ: Mapping[str, str], argument: str = "") -> Allocation:
        return allocation.find_allocation(environ)

    def end_time(self, environ: Mapping[str, str], patience: float) -> float | None:
        return allocation.end_time(environ, patience)

    def is_on_node(self, environ: Mapping[str, str]) -> bool:
        return allocation.is_on_node(environ)

    def requeue_count(self, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> int:
        count = environ.get("SLURM_RESTART_COUNT", "")
        return int(count) if count.isdecimal() else 0

    def check_started_once(self, environ: Mapping[str, str]) -> None:
        """Refuse `srun qcg-pm run …`: each task would run all jobs.

        Jobs of a manager, and managers started in jobs, have the number of tasks of a step in their environment. They
        have the number of a task only if `srun` started them.
        """
        step, rank, tasks = (environ.get(f"SLURM_{name}", "") for name in ("STEP_ID", "PROCID", "STEP_NUM_TASKS"))
        if step.isdecimal() and rank.isdecimal() and tasks.isdecimal() and int(tasks) > 1:
            raise UsageError(
                f"this is task {rank} of the {tasks} that srun has started, and each of them would run every job: call"
                " it without srun, it uses all nodes of the allocation by itself (or give --resources local, for a run"
                " of its own in each task)"
            )

    def state_of(self, allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        return scontrol.state_of(allocation, environ)

    def agent_start(self, method: StartMethod, agent: AgentCommand, environ: Mapping[str, str]) -> AgentStart:
        return ssh_start(agent, environ) if method is StartMethod.SSH else SrunStart(agent, environ)

    def multi_node(self) -> MultiNode:
        return MULTI_NODE

    def hidden_from_jobs(self) -> list[str]:
        return NOT_FOR_JOBS

    def hidden_outside_allocation(self, names: Iterable[str]) -> list[str]:
        return hidden_outside_allocation(names)

    def remote_queue(self) -> RemoteQueue:
        return remote_queue(self.name)


SYSTEM = Slurm()
