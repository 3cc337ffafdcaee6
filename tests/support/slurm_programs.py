"""Stubs of `sbatch`, `scancel` and `scontrol` whose answers a test sets."""

from __future__ import annotations

from pathlib import Path

_SBATCH = """#!/bin/bash
[ -e {refusal} ] && {{ echo "$(<{refusal})" >&2; exit 1; }}
echo "$*" >> {calls}
echo 6
"""
_SCONTROL = """#!/bin/bash
[ -e {jobs}/$3 ] || {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
echo "$(<{jobs}/$3)"
"""
_SCANCEL = """#!/bin/bash
[ -e {jobs}/$1 ] || {{ echo "scancel: error: Kill job error on job id $1: Invalid job id specified" >&2; exit 1; }}
sed -i 's/JobState=[A-Z]*/JobState=CANCELLED/' {jobs}/$1
"""
_SHOWN = """JobId={job} JobName=a
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   NodeList={nodes}
   StdOut={output}
"""


class SlurmPrograms:
    """The stubs. Every submission becomes job 6."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bin"
        self._jobs = directory / "slurm-jobs"
        self._calls = directory / "slurm-calls"
        self._refusal = directory / "slurm-refusal"
        self.path.mkdir()
        self._jobs.mkdir()
        words = {"refusal": self._refusal, "calls": self._calls, "jobs": self._jobs}
        for name, text in (("sbatch", _SBATCH), ("scontrol", _SCONTROL), ("scancel", _SCANCEL)):
            program = self.path / name
            program.write_text(text.format(**words))
            program.chmod(0o755)

    def know(self, job: str, state: str, reason: str = "None", nodes: str = "", output: str = "") -> None:
        self._jobs.joinpath(job).write_text(
            _SHOWN.format(job=job, state=state, reason=reason, nodes=nodes, output=output)
        )

    def refuse(self, *lines: str) -> None:
        self._refusal.write_text("\n".join(lines))

    @property
    def submitted(self) -> list[str]:
        """The arguments of each `sbatch`."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []
