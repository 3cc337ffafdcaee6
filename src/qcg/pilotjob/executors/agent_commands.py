"""The commands that start agents on the nodes of an allocation."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.wire import descriptors


class AgentCommand(Struct, frozen=True):
    """How an agent is started once one is on its node."""

    run_dir: Path
    linger: float
    until: float | None = None
    """When the allocation ends, as far as is known."""

    def words(self, replace_after: float | None) -> list[str]:
        """`replace_after`: an agent that is there already is ended first, if it does nothing at all for so many
        seconds."""
        command = [sys.executable, "-m", "qcg.pilotjob.agent", "--run-dir", str(self.run_dir), "--own-log"]
        command += ["--open-files", str(descriptors.GIVEN), "--linger", f"{self.linger:g}"]
        return command if replace_after is None else [*command, "--replace-after", f"{replace_after:g}"]


class SlurmStart:
    """One `srun` for any number of nodes. Agents know from their environment which node they are on.

    Where sites set InactiveLimit, Slurm misses an `srun` only that has made the allocation itself, not one that started
    a step in it.
    """

    agents_end_with_it = False
    """A step goes on without the `srun` that has started it, and ends with its last process."""

    def __init__(self, agent: AgentCommand, environ: Mapping[str, str]) -> None:
        self._agent = agent
        self.environ = {name: value for name, value in environ.items() if not _shapes_steps(name)}

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        """Which nodes each command is for, and the command."""
        count = str(len(nodes))
        # Steps share what the allocation has: a step of its own would wait for others to end. A node that fails, or an
        # agent that ends, harms no other.
        step = ["srun", "--overlap", "--mem=0", "-N", count, "-n", count, "--ntasks-per-node=1", "-w", ",".join(nodes)]
        step += [
            "--no-kill",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--cpu-bind=none",
            "--input=none",
            "--job-name=qcg-pm",
        ]
        return [(list(nodes), [*step, *self._agent.words(replace_after)])]


class SshStart:
    """One `ssh` for each node, where Slurm starts no steps."""

    agents_end_with_it = True

    def __init__(self, agent: AgentCommand, environ: Mapping[str, str]) -> None:
        self._agent = agent
        self.environ = dict(environ)

    def commands(self, nodes: Sequence[str], replace_after: float | None = None) -> list[tuple[list[str], list[str]]]:
        options = ["ssh", "-n", "-oBatchMode=yes", "-oConnectTimeout=10"]
        return [([node], [*options, node, self._far_line(node, replace_after)]) for node in nodes]

    def _far_line(self, node: str, replace_after: float | None) -> str:
        """What the shell there reads: nothing of the manager's environment comes by itself."""
        variables = {name: self.environ[name] for name in NEEDED_FAR_AWAY if name in self.environ}
        variables["SLURMD_NODENAME"] = node
        settings = [f"{name}={value}" for name, value in variables.items()]
        until = [] if self._agent.until is None else ["--until", f"{self._agent.until:.0f}"]
        return "exec env " + shlex.join([*settings, *self._agent.words(replace_after), "--outside", *until])


Start = SlurmStart | SshStart

_SHAPES = (
    *("SLURM_MEM_PER_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_TASK", "SLURM_GPUS", "SLURM_TRES_PER_TASK"),
    *("SLURM_DISTRIBUTION", "SLURM_EXCLUSIVE", "SLURM_EXACT", "SLURM_HINT", "SLURM_HOSTFILE", "SLURM_CORE_SPEC"),
    *("SLURM_THREAD_SPEC", "SLURM_THREADS_PER_CORE", "SLURM_STEP_", "SLURM_CPU_BIND", "SRUN_", "SBATCH_"),
)


def _shapes_steps(name: str) -> bool:
    """Options of the whole job that `srun` would take for its own, some of them against those it is given."""
    return name.startswith(_SHAPES)


NEEDED_FAR_AWAY = (
    *("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG"),
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_CONF"),
    # What launchers in jobs look for; the rest of it they are told of their own part.
    *("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    *("SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_MPI_TYPE"),
    *("SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_DIR"),
)
"""And nothing else: everybody on both hosts can read the command, and some variables are secrets."""


def starter(method: str, agent: AgentCommand) -> Start:
    return SshStart(agent, os.environ) if method == "ssh" else SlurmStart(agent, os.environ)
