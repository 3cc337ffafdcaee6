"""Runs of the pilot inside an allocation."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from tests.support.pilot import Run, write_requests
from tests.support.slurm_cluster import Cluster, Job
from tests.support.waiting import wait_for


class Allocated:
    """`qcg-pm run` on a request file, inside `sbatch`; all of the run's files are in the directory of the test."""

    def __init__(self, cluster: Cluster, jobs: list[dict[str, Any]], options: str = "", **sbatch: object) -> None:
        """`then`: what the batch script does afterwards, with the exit code of the run in $code."""
        self.cluster = cluster
        self.wd: Path = cluster.cwd
        write_requests(self.wd / "requests.json", jobs)
        then = sbatch.pop("then", "exit $code")
        script = f"qcg-pm run requests.json --report-format json {options}; code=$?; {then}"
        shape = {"nodes": 4, "ntasks_per_node": 4, "no_kill": True, "time": 10}
        self.job: Job = cluster.sbatch(script, **{**shape, **sbatch})

    def wait(self, timeout: float = 120) -> Run:
        code = self.job.wait(timeout)
        return Run(self.wd, _Done(code, self.job.output))  # type: ignore[arg-type]

    @property
    def log(self) -> str:
        path = self.wd / "service.log"
        return path.read_text() if path.exists() else ""

    @property
    def run_dir(self) -> Path:
        [found] = self.wd.glob(".qcgpjm-service-*")
        return found

    def wait_for_log(self, text: str, timeout: float = 60) -> None:
        wait_for(lambda: text in self.log, timeout, f"{text!r} in the log:\n{self.log[-3000:]}")

    def manager_pid(self) -> int:
        """As its own node sees it."""
        return int(json.loads((self.run_dir / "contact.json").read_text())["pid"])

    def agent_pid(self, node: str) -> int:
        return int(json.loads((self.run_dir / f"agent-{node}.json").read_text())["pid"])


class _Done:
    def __init__(self, returncode: int, stdout: str) -> None:
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = ""


def stamping(line: str) -> list[str]:
    """A job that notes when and where it begins and ends, one line in a file of its own; and does this in between."""
    script = f'echo "begin $(hostname) $(date +%s.%N)" >> $0; {line}; echo "end $(hostname) $(date +%s.%N)" >> $0'
    return ["bash", "-c", script]


def quoted(*words: str | Path) -> str:
    return shlex.join(map(str, words))
