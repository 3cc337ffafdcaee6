"""What is asked of Slurm for each allocation of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from qcg.pilotjob.batch.script import has_option, option_name
from qcg.pilotjob.batch.times import slurm_time

ONCE = ("--begin", "-b", "--deadline", "--dependency", "-d", "--hold", "-H")
"""Options of `sbatch` about when a job may start: for the submission they were given for, and not for later ones."""


class Shape(Struct, frozen=True, omit_defaults=True):
    """As the options of `qcg-pm sbatch` say it."""

    nodes: str = "1"
    cores: int | None = None
    limit: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus_per_node: str | None = None
    gres: str | None = None
    mem: str | None = None
    exclusive: bool = False
    job_name: str | None = None
    output: str | None = None
    most: int = 1
    """Allocations, one after another."""
    further: list[str] = []
    """Other options of `sbatch`."""

    def changed(self, anew: Mapping[str, Any], further: Sequence[str]) -> Shape:
        """What is given anew takes the place of what was."""
        names = [*ONCE, *map(option_name, further)]
        kept = [option for option in self.further if option_name(option) not in names]
        return msgspec.structs.replace(self, **anew, further=[*kept, *further])

    def options(self, name: str, wd: Path) -> list[str]:
        """Those of `sbatch`, as `--name=value`."""
        options = [f"--job-name={self.job_name or name}", f"--chdir={wd}", f"--nodes={self.nodes}"]
        if self.cores:
            options.append(f"--ntasks-per-node={self.cores}")
        divided = has_option(self.further, "--ntasks", "-n", "--cpus-per-task", "-c", "--exclusive")
        whole = not self.cores and not divided
        if self.exclusive or whole:
            options.append("--exclusive")
        memory = self.mem
        if memory is None and whole and not has_option(self.further, "--mem-per-cpu", "--mem-per-gpu"):
            memory = "0"
        asked = {
            "--mem": memory,
            "--time": slurm_time(self.limit) if self.limit is not None else None,
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--gpus-per-node": self.gpus_per_node,
            "--gres": self.gres,
            "--output": self.output or f"{str(wd).replace('%', '%%')}/slurm-%j.out",
        }
        options += [f"{name}={value}" for name, value in asked.items() if value is not None]
        # A node that dies takes its own jobs with it, and not the whole allocation: the pilot goes on with the others.
        # When Slurm does end the job for another reason and queues it again, nothing is lost: the script goes on with
        # the run.
        return [*options, "--no-kill", "--requeue", *self.further]

    def __str__(self) -> str:
        """As one would write it on a command line."""
        words = [f"--nodes={self.nodes}"]
        for name in ("cores", "limit", "partition", "account", "qos", "gpus_per_node", "gres", "mem"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{'time' if name == 'limit' else name.replace('_', '-')}={value}")
        words += ["--exclusive"] if self.exclusive else []
        words += [f"--output={self.output}"] if self.output is not None else []
        words += [f"--max-allocations={self.most}"]
        return shlex.join([*words, *(["--", *self.further] if self.further else [])])
