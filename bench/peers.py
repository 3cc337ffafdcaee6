"""Peers, each in its own virtual environment, which run no-op jobs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.finding import BenchError
from bench.limit import fresh
from bench.turns import say

DRIVERS = Path(__file__).parent / "drivers"
PATIENCE = 600


class Missing(BenchError):
    """A peer that cannot be measured here."""


@dataclass(frozen=True)
class Peer:
    name: str
    count: int
    """Number of jobs that take a few seconds."""
    requirement: str = ""
    """Requirement for pip."""
    driver: str = ""
    """A program of drivers/ that prints the seconds it took."""
    program: str = ""
    """In place of a driver: a program of the Debian package `package`, run by the shell line `line`."""
    package: str = ""
    line: str = ""
    orphans: bool = False
    """Its workers outlive their parent, so their CPU time cannot be measured."""
    less: str = ""
    """Work that it leaves out and others do: such a peer is no target."""

    def seconds(self, directory: Path, count: int, parallel: int) -> float:
        """Seconds from submission to the last end, without the start of the peer itself."""
        folder = fresh(directory / "peer-out")
        if self.line:
            return _run_line(self.line.format(count=count, parallel=parallel), folder)
        python = environment_of(directory, self) / "bin" / "python"
        command = [str(python), str(DRIVERS / f"{self.driver}.py"), str(count), str(parallel), str(folder)]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**_clean_environment(), "PATH": path, "PYTHONWARNINGS": "ignore"}
        try:
            done = processes.run(
                command, processes.AT_ONCE, timeout=PATIENCE, cwd=folder, env=environment, **processes.CAPTURED
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"{self.name} did not end within {PATIENCE} s") from None
        if done.returncode:
            raise Missing(f"{self.name} failed: {done.stderr.strip()[-500:]}")
        return float(done.stdout.split()[-1])


PEERS = [
    Peer("QCG-PilotJob 0.14", 1500, requirement="qcg-pilotjob==0.14.2", driver="run_qcg_pilotjob"),
    Peer("HyperQueue", 8000, requirement="hyperqueue==0.27.0", driver="run_hyperqueue"),
    Peer("Parsl", 2000, requirement="parsl==2026.10.26", driver="run_parsl", orphans=True),
    Peer("Dask", 3000, requirement="distributed==2026.8.0", driver="run_dask"),
    Peer(
        "GNU parallel",
        1500,
        program="parallel",
        package="parallel",
        line="seq {count} | parallel --will-cite -j {parallel} '/bin/true > {{}}'",
    ),
    Peer(
        "xargs and sh",
        10_000,
        program="xargs",
        package="findutils",
        line="seq {count} | xargs -P {parallel} -I NUMBER sh -c 'exec /bin/true > NUMBER'",
    ),
    Peer(
        "xargs alone",
        10_000,
        program="xargs",
        package="findutils",
        line="seq {count} | xargs -P {parallel} -n 1 /bin/true",
        less="no output files",
    ),
]


def set_up(peer: Peer, directory: Path) -> str:
    """Install the peer if necessary, and return its version. Raises `Missing`."""
    if peer.program:
        _install_package(peer)
        done = subprocess.run([peer.program, "--version"], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0]
    environment = environment_of(directory, peer)
    stamp = environment / "installed"
    if not stamp.exists() or stamp.read_text() != peer.requirement:
        say(f"installing {peer.requirement}")
        shutil.rmtree(environment, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(environment)],
            [str(environment / "bin" / "pip"), "--disable-pip-version-check", "install", "-q", peer.requirement],
        ):
            done = processes.run(command, env=_clean_environment(), **processes.CAPTURED)
            if done.returncode:
                why = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
                raise Missing(f"{peer.requirement} cannot be installed: {why[0]}")
        stamp.write_text(peer.requirement)
    return peer.requirement.replace("==", " ")


def environment_of(directory: Path, peer: Peer) -> Path:
    return directory / "peers" / peer.driver.removeprefix("run_")


def _install_package(peer: Peer) -> None:
    if shutil.which(peer.program):
        return
    if os.getuid() == 0 and shutil.which("apt-get"):
        say(f"installing {peer.package}")
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for command in (["update"], ["install", "-y", "--no-install-recommends", peer.package]):
            subprocess.run(["apt-get", "-qq", *command], check=False, **quiet)  # type: ignore[call-overload]
    if shutil.which(peer.program) is None:
        raise Missing(f"{peer.name} is not there; as root: apt-get install {peer.package}")


def _run_line(line: str, folder: Path) -> float:
    began = time.monotonic()
    command = ["bash", "-c", f"set -o pipefail; cd {shlex.quote(str(folder))}; {line}"]
    done = processes.run(command, processes.AT_ONCE)
    if done.returncode:
        raise Missing(f"it ended with exit code {done.returncode}: {line}")
    return time.monotonic() - began


def _clean_environment() -> dict[str, str]:
    """The environment without the Python paths of this project."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
