"""Runs inside an allocation."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support.pilot import Run, job, write_requests
from tests.support.slurm_cluster import Cluster, Job
from tests.support.waiting import wait_for


class AllocationRun:
    """`qcg-pm run` in a batch job; the working directory is the directory of the test."""

    def __init__(self, cluster: Cluster, jobs: list[dict[str, Any]], options: str = "", **sbatch: object) -> None:
        """`first`, `then`: lines of the batch script before and after the run; `$code` is the exit code of the run."""
        self.cluster = cluster
        self.wd: Path = cluster.cwd
        write_requests(self.wd / "requests.json", jobs)
        first, then = sbatch.pop("first", ":"), sbatch.pop("then", "exit $code")
        script = f"{first}\nqcg-pm run requests.json --report-format json {options}\ncode=$?\n{then}"
        shape = {"nodes": 4, "ntasks_per_node": 4, "no_kill": True, "time": 10}
        self.job: Job = cluster.sbatch(script, **{**shape, **sbatch})

    def wait(self, timeout: float = 120) -> Run:
        code = self.job.wait(timeout)
        return Run(self.wd, subprocess.CompletedProcess([], code, self.job.output))

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

    def report_states(self) -> dict[str, str]:
        return run_in(self.wd).states

    def manager_pid(self) -> int:
        """The pid on the node of the manager."""
        return int(json.loads((self.run_dir / "contact.json").read_text())["pid"])

    def agent_pid(self, node: str) -> int:
        return int(json.loads((self.run_dir / f"agent-{node}.json").read_text())["pid"])


def run_in(wd: Path) -> Run:
    """The run in a working directory, without the output of its manager."""
    return Run(wd, subprocess.CompletedProcess([], 0, ""))


def granted_cores(entry: dict[str, Any]) -> list[tuple[str, int]]:
    """Node and number of each core granted to a job, from its entry in the report."""
    parts = re.findall(r"([^,\[]+)\[([\d:]+)\]", entry["runtime"]["allocation"])
    return [(node, int(core)) for node, cores in parts for core in cores.split(":")]


def waiting_jobs(name: str, count: int, **more: Any) -> dict[str, Any]:
    """An iterated job whose iterations run until the file `go` exists. Several times a second, each attempt appends its
    host and the time to its own file, for `JobTraces`."""
    # The pause is a `read` that never gets anything: hundreds of `sleep` a second would keep the machine busy.
    script = (
        "host=$(hostname); mkdir -p life; exec {never}<> <(:); until [ -e go ]; do"
        ' echo "$host $EPOCHREALTIME" >> life/$0.$host.$$; read -rt 0.2 -u $never; done;'
        " echo done >> life/$0.done"
    )
    return job(name, "bash", "-c", script, f"{name}.${{it}}", iteration={"stop": count}, **more)


class JobTraces:
    """The files written by jobs made with `waiting_jobs`."""

    def __init__(self, wd: Path) -> None:
        self.spans: dict[str, list[tuple[str, float, float]]] = {}
        """For each job, the host and the first and last time of each attempt."""
        for path in sorted((wd / "life").glob("*.*.*.*")):
            name, index, host, _ = path.name.split(".")
            times = [float(line.split()[1]) for line in path.read_text().splitlines() if len(line.split()) == 2]
            if times:
                self.spans.setdefault(f"{name}:{index}", []).append((host, min(times), max(times)))
        self.ends = {
            path.name.removesuffix(".done").replace(".", ":"): path.read_text().count("done")
            for path in (wd / "life").glob("*.done")
        }

    def on(self, host: str) -> set[str]:
        """Jobs that were started on this host."""
        return {name for name, spans in self.spans.items() if any(where == host for where, _, _ in spans)}

    def overlap(self, name: str) -> bool:
        """Whether two attempts of a job ran at the same time."""
        spans = sorted(self.spans[name], key=lambda span: span[1])
        return any(later[1] <= earlier[2] for earlier, later in itertools.pairwise(spans))
