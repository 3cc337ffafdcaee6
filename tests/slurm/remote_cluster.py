"""A node of a Slurm cluster as a remote host: reached from the login node by ssh, with Slurm as its batch system."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.cluster.remote_queue import RemoteQueue
from tests.host.remote.far_side import INSTANCE, FarSide, build_zipapp
from tests.support.processes import Process
from tests.support.slurm_cluster import Cluster, Job

PYTHON = "/usr/bin/python3"
"""A Python without this project: the far side needs nothing but the file that is sent to it."""


def described(**changes: Any) -> dict[str, Any]:
    """Slurm's commands, as a manager sends them."""
    queue = batch_system("slurm").remote_queue()
    assert isinstance(queue, RemoteQueue)
    return json.loads(msgspec.json.encode(msgspec.structs.replace(queue, **changes)))


class SlurmFarSide(FarSide):
    """The far side on node `host`, without a manager. Commands go through ssh, as those of a manager do."""

    PAUSE = 0.5

    def __init__(self, cluster: Cluster, host: str = "n1") -> None:
        zipapp = cluster.cwd / "far.pyz"
        if not zipapp.exists():
            build_zipapp(zipapp)
        # A run for each test: batch jobs are found by name, and the cluster remembers those of earlier tests.
        instance = hashlib.sha256(f"{INSTANCE} {cluster.cwd}".encode()).hexdigest()[:32]
        super().__init__(cluster.cwd, host=host, command=[PYTHON, str(zipapp)], instance=instance)
        self.cluster = cluster

    def popen(self, subcommand: str, *arguments: str) -> subprocess.Popen[bytes]:
        # BatchMode: a question would hang.
        words = [
            "ssh",
            "-oBatchMode=yes",
            "-T",
            f"remote-{self.host}",
            *self.command,
            subcommand,
            str(self.run_dir),
            *arguments,
        ]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return self.cluster.start(*words, text=False, **pipes)  # type: ignore[return-value]

    def attach(self, **changes: Any) -> dict[str, Any]:
        """Connect as a manager does, with a query of the queue at each poll."""
        return self.init(batch=described(**{"submit_poll_interval": 0.0, "poll_interval": 0.0, **changes}))

    def command_on_host(self, subcommand: str) -> Process | None:
        """The process of a sub-command on the host."""
        for process in self.cluster.node(self.host).processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
                if words[0] == PYTHON.encode() and subcommand.encode() in words:
                    return process
        return None

    def ends_on_disk(self) -> dict[str, list[Any]]:
        """The ends in the ledger of batch jobs, by id."""
        lines = (self.service / "batch.ledger").read_text().splitlines()
        records = [json.loads(line) for line in lines if line.startswith('["e"')]
        return {record[2]: record[3:] for record in records}

    def job_id(self, name: str) -> str:
        return self.status(f"1/{name}/01")["JOB_ID"]

    def wait_for_slurm(self, name: str, timeout: float) -> str:
        """The final state of a job in Slurm, once the controller has recorded it. Nothing is polled."""
        return Job(self.cluster, self.job_id(name), self.path("none")).wait_for_state(timeout)

    def path(self, name: str) -> Path:
        """A file in the working directories of jobs."""
        return self.run_dir / "work" / "1" / name


def execution(name: str, code: int = 0) -> str:
    """A shell script that counts its executions beside its working directory."""
    return f"echo $$ >> ../count-{name}; exit {code}"


def executions(far: SlurmFarSide, name: str) -> int:
    counted = far.path(f"count-{name}")
    return len(counted.read_text().splitlines()) if counted.exists() else 0
