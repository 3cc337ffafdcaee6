"""The commands that start agents on the nodes of a Slurm allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qcg.pilotjob.cluster.agent_start import AgentCommand, SshStart
from qcg.pilotjob.cluster.slurm.environment import NODE_VARIABLE

_SHAPES_STEPS = (
    *("SLURM_MEM_PER_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_TASK", "SLURM_GPUS", "SLURM_TRES_PER_TASK"),
    *("SLURM_DISTRIBUTION", "SLURM_EXCLUSIVE", "SLURM_EXACT", "SLURM_HINT", "SLURM_HOSTFILE", "SLURM_CORE_SPEC"),
    *("SLURM_THREAD_SPEC", "SLURM_THREADS_PER_CORE", "SLURM_STEP_", "SLURM_CPU_BIND", "SRUN_", "SBATCH_"),
)
"""Options of the whole job that `srun` would take for its own, some of them against those it is given."""

NEEDED_WITHOUT_SRUN = (
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF"),
    # MPI launchers in jobs look for these; the other variables describe the grant of the job.
    *("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    *("SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_MPI_TYPE"),
    *("SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_DIR"),
)
"""Variables of the allocation for agents that `ssh` starts. The list is short because everybody on both hosts can read
the command, and some variables are secrets."""


class SrunStart:
    """Starts the agents of any number of nodes with one `srun`.

    Where sites set InactiveLimit, Slurm ends only an inactive `srun` that has made the allocation itself, not one that
    started a step in it.
    """

    command_keeps_agents_alive = False
    """A step continues without the `srun` that started it, and ends with its last process."""

    def __init__(self, agent: AgentCommand, environ: Mapping[str, str]) -> None:
        self._agent = agent
        self.environ = {name: value for name, value in environ.items() if not name.startswith(_SHAPES_STEPS)}

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        count = str(len(nodes))
        # Steps share the resources of the allocation: otherwise this step would wait for others to end. The failure of
        # one node, or the end of one agent, does not end the others.
        step = ["srun", "--overlap", "--mem=0", "-N", count, "-n", count, "--ntasks-per-node=1", "-w", ",".join(nodes)]
        step += [
            "--no-kill",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--cpu-bind=none",
            "--input=none",
            "--job-name=qcg-pm",
        ]
        return [(list(nodes), [*step, *self._agent.words(replace_after), "--name-variable", NODE_VARIABLE])]


def ssh_start(agent: AgentCommand, environ: Mapping[str, str]) -> SshStart:
    """Starts agents with `ssh`, where Slurm starts no steps."""
    return SshStart(agent, environ, variables=NEEDED_WITHOUT_SRUN, node_variable=NODE_VARIABLE)
