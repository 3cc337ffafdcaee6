"""A real Slurm cluster on this one machine (`tests/lab/slurm`), and its operations for tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.processes import Process
from tests.support.waiting import wait_for

Done = subprocess.CompletedProcess[str]

LAB = Path(__file__).parents[1] / "lab" / "slurm"

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
}
"""The programs that a cluster needs, and their Debian packages."""

POLLS = 100
PAUSE = 0.05
"""Number of polls after which a process counts as left behind. The limit counts polls, not seconds: a machine that is
busy or suspended delays both."""

_RPC = re.compile(r"^\t(\w+) +\( *\d+\) count:(\d+)", re.MULTILINE)


def why_impossible() -> str | None:
    """The reason why this machine cannot have a cluster; empty if it can."""
    if os.geteuid() != 0:
        return "A Slurm cluster of namespaces needs root."
    missing = sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)
    if missing:
        return f"A Slurm cluster needs packages that are not installed: {', '.join(missing)}."
    trial = ["unshare", "--net", "--uts", "--pid", "--mount", "--ipc", "--fork", "true"]
    if subprocess.run(trial, capture_output=True, check=False).returncode:
        return "A Slurm cluster needs namespaces, and root may not make them here."
    return None


class Job:
    """A batch job."""

    def __init__(self, cluster: Cluster, job_id: str, output: Path) -> None:
        self.cluster = cluster
        self.id = job_id
        self.output_path = output

    @property
    def output(self) -> str:
        """The output so far, of both streams."""
        return self.output_path.read_text() if self.output_path.exists() else ""

    @property
    def state(self) -> str:
        """The state as the controller reports it: PENDING, RUNNING, COMPLETED …"""
        shown = self.cluster.run("scontrol", "show", "job", self.id).stdout
        return re.findall(r"^ +JobState=(\w+)", shown, re.MULTILINE)[0]

    def wait_until_running(self, timeout: float = 60) -> None:
        wait_for(lambda: self.state == "RUNNING", timeout, f"the start of job {self.id}")

    def wait(self, timeout: float = 60) -> int:
        """The exit code of the script, after its end; 128 + number for a signal. The controller is not queried."""
        code, number = map(int, self._wait_for_end(timeout)["ExitCode"].split(":"))
        return 128 + number if number else code

    def wait_for_state(self, timeout: float = 60) -> str:
        """The final state: COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL …"""
        return self._wait_for_end(timeout)["JobState"]

    def cancel(self, *options: str) -> None:
        """`scancel`, with options such as `--signal=USR1`."""
        self.cluster.run("scancel", *options, self.id)

    def _wait_for_end(self, timeout: float) -> dict[str, str]:
        try:
            return wait_for(self._end, timeout, f"the end of job {self.id}")
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure}\nThe job wrote:\n{self.output[-5000:]}", pytrace=False)

    def _end(self) -> dict[str, str]:
        """The last line about the job in the file where the controller records the ends of jobs."""
        ends = self.cluster.directory / "log" / "jobcomp.txt"
        written = ends.read_text() if ends.exists() else ""
        lines = written[: written.rfind("\n") + 1].splitlines()  # the last line may be incomplete
        fields = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        # A job that continues without a failed node is recorded as well.
        mine = [
            one for one in fields if one["JobId"] == self.id and "ExitCode" in one and one["JobState"] != "RESIZING"
        ]
        return mine[-1] if mine else {}


class Node:
    """One node of the cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.is_troubled = False
        """It has been cut off or killed, wholly or in part, and has to be booted before the next test."""

    def exec(self, *argv: str | Path, **options: Any) -> Done:
        """Run a command on the node, outside of Slurm."""
        return self.cluster.run(*self._script("exec"), *argv, **options)

    def crash(self) -> None:
        """Cut the power of the node: all its processes die at once, and the network reports nothing."""
        self.is_troubled = True
        self._do("crash")

    def boot(self) -> None:
        """Start it after a crash."""
        self._do("boot")

    def cut(self) -> None:
        """Unplug the network of the node. Its processes continue."""
        self.is_troubled = True
        self._do("cut")

    def heal(self) -> None:
        """Plug it in again."""
        self._do("heal")

    def kill_slurmd(self) -> None:
        self.is_troubled = True
        self._do("kill-slurmd")

    def start_slurmd(self) -> None:
        self._do("start-slurmd")

    def processes(self) -> set[Process]:
        """The processes on the node except the node itself, with the pids of this machine."""
        init = self.cluster.outer_pid(self._recorded_pid())
        if init is None:
            return set()
        pid_files = [self.cluster.directory / f"{daemon}.{self.name}.pid" for daemon in ("slurmd", "sshd")]
        own = [[int(path.read_text())] for path in pid_files if path.exists()]
        return {found for found in processes.descendants(init) if processes.inner_pids(found.pid)[-1:] not in own}

    def reset(self) -> None:
        """Restore the initial state: a node in any other state is booted again."""
        if self.cluster.outer_pid(self._recorded_pid()) is not None:
            self._do("crash")
        self._do("boot")
        self.is_troubled = False

    def _recorded_pid(self) -> int:
        """The pid of the first process of the node, as the login node sees it."""
        return int((self.cluster.directory / "nodes" / self.name).read_text())

    def _script(self, action: str) -> list[str]:
        return [str(LAB / "node"), action, self.name]

    def _do(self, action: str) -> None:
        self.cluster.run(*self._script(action))


class Cluster:
    """A controller, a login node, and nodes called n1, n2 …

    All of them share the file systems of this machine. Commands run on the login node unless it is said otherwise.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.cwd = directory
        """Where commands and jobs run: the `tmp_path` of the test."""
        self._outputs = 0
        self._commands: list[subprocess.Popen[str]] = []
        """The commands that had not ended when the last one was started, with the last one."""
        choices = {f"LAB_{name.upper()}": str(value) for name, value in settings.items()}
        with (directory / "lab.out").open("w") as out:
            self._lab = subprocess.Popen(
                [LAB / "cluster", directory],
                env={**os.environ, **choices},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        lab = processes.identify(self._lab.pid)
        if lab is not None:
            processes.set_apart(lab)
        self._wait_until_ready()
        self._login_pid = int((directory / "login.pid").read_text())
        self._enter = ["nsenter", f"--target={self._login_pid}", "--all"]
        names = sorted((path.name for path in (directory / "nodes").iterdir()), key=lambda name: int(name[1:]))
        self.nodes = [Node(self, name) for name in names]

    def _wait_until_ready(self) -> None:
        ready = self.directory / "ready"
        try:
            wait_for(lambda: ready.exists() or self._lab.poll() is not None, 120, "a cluster")
        finally:
            if not ready.exists():
                self.close()
        assert ready.exists(), f"The cluster did not start: {(self.directory / 'lab.out').read_text()}"

    def close(self) -> None:
        self._lab.kill()
        self._lab.wait()
        recorded = self.directory / "login.pid"
        if recorded.exists():
            login = int(recorded.read_text())
            wait_for(lambda: not processes.is_alive(login), 30, "the end of the cluster")

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    # -- commands ---------------------------------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a user on the login node, for whom this project is installed."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "QCG"))}
        own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"
        return {**own, "SLURM_CONF": str(self.directory / "etc" / "slurm.conf"), "LAB_DIR": str(self.directory)}

    def start(self, *argv: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the login node. `env` is added to the environment.

        The process is `nsenter`, whose child is the command: send signals to the process group of this pid.
        """
        cwd = options.pop("cwd", self.cwd)
        process = subprocess.Popen(
            [*self._enter, f"--wdns={cwd}", *map(str, argv)],
            env={**self.environ, **(env or {})},
            **{"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True, **options},
        )
        self._commands = [*(one for one in self._commands if one.poll() is None), process]
        return process

    def run(self, *argv: str | Path, timeout: float = 60, check: bool = True, **options: Any) -> Done:
        """Run a command on the login node to its end. One that fails fails the test, unless `check` is false."""
        # No pipes: processes that the command leaves behind may keep them open forever.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(*argv, stdout=out, stderr=err, **options)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                kill_command(process)
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(process.args, process.returncode, out.read(), err.read())
        if done.returncode == -signal.SIGKILL or (check and done.returncode):
            streams = f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
            raise AssertionError(f"{argv}: exit code {done.returncode} (timeout {timeout:g} s)\n{streams}")
        return done

    def sbatch(self, script: str, **options: Any) -> Job:
        """Submit a bash script. Options are those of `sbatch`: `nodes=2, gres="gpu:1", exclusive=True`.

        `env` is added to the environment, and `components` are the options of further components of a
        heterogeneous job.
        """
        self._outputs += 1
        env = options.pop("env", None)
        components = options.pop("components", [])
        path = self.cwd / f"batch-{self._outputs}.sh"
        output = self.cwd / f"batch-{self._outputs}.out"
        path.write_text(f"#!/bin/bash\n{script}\n")
        arguments = _options({"output": output, **options})
        for component in components:
            arguments += [":", *_options(component)]
        answer = self.run("sbatch", "--parsable", *arguments, path, env=env)
        return Job(self, answer.stdout.strip().partition(";")[0], output)

    def salloc(
        self,
        *argv: str | Path,
        timeout: float = 60,
        check: bool = True,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> Done:
        """Run a command on the login node with an allocation of its own. Options are those of `salloc`."""
        return self.run("salloc", "--quiet", *_options(options), *argv, timeout=timeout, check=check, env=env)

    def calls(self) -> Counter[str]:
        """How often the controller has been called, by type: subtract an earlier answer from a later one.

        `REQUEST_JOB_STEP_CREATE` is an `srun`, which may have to ask again; `REQUEST_JOB_INFO_SINGLE` a look at a job.
        The nodes call too.
        """
        return calls_in(self.run("sdiag").stdout)

    # -- the controller ---------------------------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self.run(LAB / "node", "kill-controller")

    def start_controller(self) -> None:
        self.run(LAB / "node", "start-controller")

    # -- between tests ----------------------------------------------------------------------------------------------

    def end_commands(self) -> list[str]:
        """End the commands that a test has started and not waited for, as a failing test does. Returns their names."""
        left = [one for one in self._commands if one.poll() is None]
        for process in left:
            kill_command(process)
        self._commands = []
        return [f"login: {process.args!r}" for process in left]

    def clean_up(self) -> list[str]:
        """End all jobs and boot failed nodes. Processes without a job are killed and named."""
        if self.run("scontrol", "ping", check=False).returncode:
            self.start_controller()
        self.run("scancel", "--full", "--signal=KILL", "--state=RUNNING", "--user=root", check=False)
        self.run("scancel", "--user=root", check=False)
        for node in self.nodes:
            if node.is_troubled:
                node.reset()
        wait_for(self._has_no_jobs, 60, "the end of all jobs")
        wait_for(self._is_idle, 60, f"idle nodes: {self.run('sinfo', '-N', '-h', '-o', '%N %T %E').stdout}")
        # The step daemons of Slurm exit a moment after their steps.
        wait_for(lambda: not any(_keeps_a_step(process) for _, process in self.left_behind()), 30, "the ends of steps")
        # The shared connection of a killed manager in one-shot mode stays for 30 seconds after its last command.
        wait_for(lambda: not any("[mux]" in str(process) for _, process in self.left_behind()), 60, "connections")
        left = self._leftovers()
        names = [f"{where}: {process}" for where, process in left]
        processes.end({process for _, process in left})
        return names

    def _leftovers(self) -> list[tuple[str, Process]]:
        """The processes left behind, without ending ones: connections of `ssh` and killed processes."""
        for _ in range(POLLS):
            if not self.left_behind():
                break
            time.sleep(PAUSE)
        return self.left_behind()

    def left_behind(self) -> list[tuple[str, Process]]:
        """The processes on the nodes and on the login node that belong to no job and not to the cluster."""
        found = [(node.name, process) for node in self.nodes for process in node.processes()]
        return found + [("login", process) for process in self._on_login()]

    def _on_login(self) -> set[Process]:
        """Orphans on the login node: children of its first process."""
        found = set()
        for child in processes.children(self._login_pid):
            if _name_of(child) not in ("", "slurmctld", "munged", "unshare"):
                found |= {child, *processes.descendants(child.pid)}
        return found

    def _has_no_jobs(self) -> bool:
        if not self.run("squeue", "-h").stdout.strip():
            return True
        # A step whose `srun` has ended, such as that of the agents, tries for two seconds to report its end. No test
        # waits for that. Steps with processes and batch scripts are not affected.
        steps = [one for _, one in self.left_behind() if _keeps_a_step(one) and ".batch]" not in str(one)]
        processes.end({one for one in steps if not processes.children(one.pid)})
        return False

    def _is_idle(self) -> bool:
        return self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == str(len(self.nodes))

    def outer_pid(self, login_pid: int) -> int | None:
        """The pid on this machine of the first process of a node, from its pid on the login node."""
        for found in processes.descendants(self._login_pid):
            pids = processes.inner_pids(found.pid)
            if len(pids) == 3 and pids[1:] == [login_pid, 1]:
                return found.pid
        return None


def kill_command(process: subprocess.Popen[str]) -> None:
    """Kill a command of `Cluster.start`. `nsenter` then ends by itself after its child, which would stay a zombie
    otherwise and keep the cluster from ending."""
    while process.poll() is None:
        processes.end(processes.descendants(process.pid))
        time.sleep(0.01)


def _keeps_a_step(process: Process) -> bool:
    return _name_of(process).startswith("slurmstepd")


def _name_of(process: Process) -> str:
    """The name of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextmanager
def running_cluster(**settings: object) -> Iterator[Cluster]:
    """A cluster with settings of `tests/lab/slurm/settings.sh`: `nodes=2, cpus=8, threads=2`."""
    directory = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))  # sockets need short paths
    directory.chmod(0o755)
    cluster: Cluster | None = None
    try:
        cluster = Cluster(directory, **settings)
        yield cluster
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def lent(cluster: Cluster, directory: Path) -> Iterator[Cluster]:
    """The cluster for one test, which runs in this directory and leaves nothing behind on the nodes."""
    cluster.cwd = directory
    left: list[str] = []
    try:
        yield cluster
    finally:
        left += cluster.end_commands()
    left += cluster.clean_up()
    if left:
        pytest.fail("\n".join(["Left behind on the cluster:", *left]), pytrace=False)


def calls_in(shown: str) -> Counter[str]:
    """The calls of the controller by type, from the output of `sdiag`."""
    by_type = shown.partition("by message type")[2].partition("by user")[0]
    return Counter({name: int(count) for name, count in _RPC.findall(by_type)})


def _options(options: Any) -> list[str]:
    """`gres="gpu:1", exclusive=True` as `--gres=gpu:1 --exclusive`."""
    found = []
    for name, value in options.items():
        if value is True:
            found.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False:
            found.append(f"--{name.replace('_', '-')}={value}")
    return found
