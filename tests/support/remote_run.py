"""Runs on citadel whose jobs go to other hosts of the laboratory. Their managers are killed and resumed."""

from __future__ import annotations

import compileall
import functools
import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.pilot import job
from tests.support.processes import Process
from tests.support.ssh_host import Host, kill_command, signal_command
from tests.support.ssh_lab import ROOT, Lab
from tests.support.waiting import wait_for

RUN = "x"
PATIENCE = 60.0
CHANNELS = ("serve", "one-shot")

MARKS, RELEASE = "marks", "release"
"""Files in the home directory of a host: a line for each start of a job; the sign for waiting jobs to end."""
SOON = 5.0
"""Seconds between two attempts to reach a host whose network was lost a short time ago, at most."""
GATE = "go"
"""The file in the working directory that the jobs of `connected` wait for."""


def remote_job(name: str, script: str = "", host: str = "wizard", **more: Any) -> dict[str, Any]:
    """A job that writes a mark to the home directory of its host when it starts, and then runs a script."""
    mark = f"{name}:${{it}}" if "iteration" in more else name
    remote: dict[str, Any] = {
        "host": host,
        **{key: more.pop(key) for key in ("inputs", "outputs", "directives") if key in more},
    }
    return {**job(name, "/bin/sh", "-c", f"echo {mark} >> ~/{MARKS}; {script or 'exit 0'}", **more), "remote": remote}


def waiting_job(name: str, then: str = "exit 0", **more: Any) -> dict[str, Any]:
    """A remote job that ends after `release`."""
    return remote_job(name, f"until [ -e ~/{RELEASE} ]; do sleep 0.2; done; {then}", **more)


def connected(jobs: Iterable[dict[str, Any]], host: str = "wizard") -> list[dict[str, Any]]:
    """These jobs, which start after another job has made the connection to the host and `RemoteRun.open_gate` was
    called."""
    gate = job("gate", "/bin/sh", "-c", f"until [ -e {GATE} ]; do sleep 0.02; done", after=["first"])
    first = {**job("first", "/bin/true"), "remote": {"host": host}}
    return [first, gate, *({**one, "dependencies": {"after": ["gate"]}} for one in jobs)]


class RemoteRun:
    """One run: its manager is started on citadel, killed, and started again."""

    def __init__(
        self,
        lab: Lab,
        jobs: Iterable[Mapping[str, Any]],
        *,
        channel: str = "serve",
        hosts: Mapping[str, Mapping[str, Any]] | None = None,
        options: Iterable[str] = (),
        **settings: Any,
    ) -> None:
        """`hosts`: tables of hosts.toml; by default wizard with 4 cores. `settings`: keys of all of them."""
        _compile_modules()
        self.lab = lab
        self.wd = lab.citadel.home / "project"
        self.run_dir = self.wd / f".qcgpjm-service-{RUN}"
        self.manager: subprocess.Popen[str] | None = None
        common = {"channel": channel, "cores": 4}
        if channel == "one-shot":
            common |= {"submit_poll_interval": 1.0, "poll_interval": 1.0}
        self.configure({name: {**common, **settings, **own} for name, own in (hosts or {"wizard": {}}).items()})
        requests = [{"request": "submit", "jobs": list(jobs)}]
        lab.citadel.write("project/requests.json", json.dumps(requests))
        more = ("--hosts", "hosts.toml", "--nodes", "4", "--id", RUN, "--report-format", "json", "--log", "debug")
        self._begin = ("requests.json", *more, *options)

    def configure(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Write hosts.toml."""
        tables = [
            f"[{name}]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in host.items()) for name, host in hosts.items()
        ]
        self.lab.citadel.write("project/hosts.toml", "\n".join(tables))

    # -- life and death of the manager ------------------------------------------------------------------------------

    def start(self, *more: str) -> RemoteRun:
        """Start a manager: the first one, or one that resumes the run, with more options."""
        arguments = (*(("--resume", self.run_dir.name) if self._has_begun() else self._begin), *more)
        with (self.wd / "out").open("a") as out, (self.wd / "err").open("a") as err:
            self.manager = self.lab.citadel.start("qcg-pm", "run", *arguments, cwd="project", stdout=out, stderr=err)
        return self

    def _has_begun(self) -> bool:
        log = self.run_dir / "service.log"
        return log.exists() and "submitted" in log.read_text()

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end of the manager; its exit code."""
        assert self.manager is not None
        try:
            return self.manager.wait(timeout)
        except subprocess.TimeoutExpired:
            explanation = self.explain()
            kill_command(self.manager)
            pytest.fail(f"The manager did not end in {timeout:g} s.\n{explanation}", pytrace=False)

    def finish(self, timeout: float = PATIENCE) -> None:
        """Wait for the end of the run, in which all jobs succeeded."""
        code = self.wait(timeout)
        assert code == 0, f"exit code {code}\n{self.explain()}"

    def kill(self) -> None:
        """Kill the manager with SIGKILL."""
        assert self.manager is not None
        kill_command(self.manager)

    def interrupt(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.manager is not None
        signal_command(self.manager, number)

    def explain(self) -> str:
        """The log and reports of the run, for the message of a failed test."""
        log = self.log()
        parts = [self.output(), log[-6000:]]
        found = _processes_on(self.lab.hosts)
        far = [path.read_text()[-2000:] for path in self.far_directory().glob(".service/*.log")]
        return "\n".join([*parts, *found, *far])

    # -- what it did ------------------------------------------------------------------------------------------------

    def log(self) -> str:
        path = self.run_dir / "service.log"
        return path.read_text() if path.exists() else ""

    def output(self) -> str:
        """What the managers of the run have written to the terminal."""
        return (self.wd / "out").read_text() + (self.wd / "err").read_text()

    def wait_for_log(self, pattern: str, timeout: float = PATIENCE) -> None:
        wait_for(lambda: re.search(pattern, self.log()), timeout, lambda: f"{pattern!r} in the log\n{self.explain()}")

    def pauses(self) -> list[float]:
        """The pauses before further attempts to connect so far, in seconds."""
        return [float(seconds) for seconds in re.findall(r"the next connection is tried in ([\d.]+) s", self.log())]

    def report(self) -> dict[str, dict[str, Any]]:
        """The entries of the report by name; each name must occur once."""
        path = self.run_dir / "jobs.report"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        names = Counter(entry["name"] for entry in entries)
        assert not [name for name, count in names.items() if count > 1], "reported twice"
        return {entry["name"]: entry for entry in entries}

    def states(self) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.report().items()}

    def wait_for_states(self, states: Mapping[str, str], timeout: float = PATIENCE) -> None:
        """Wait until these jobs are reported with these states."""
        wait_for(lambda: states.items() <= self.states().items(), timeout, lambda: f"{states}\n{self.explain()}")

    def qcg_pm(self, *arguments: str, check: bool = True) -> str:
        """The output of a command about this run."""
        return self.lab.citadel.run("qcg-pm", *arguments, cwd="project", check=check).stdout

    def refused(self, *arguments: str) -> str:
        """The message of a command about this run that fails."""
        done = self.lab.citadel.run("qcg-pm", *arguments, cwd="project", check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def why(self, name: str) -> str:
        return self.qcg_pm("-p", self.run_dir.name, "why", name, check=False)

    # -- on the host ------------------------------------------------------------------------------------------------

    def far_directory(self, host: Host | None = None) -> Path:
        """The directory of the run on a host."""
        return (host or self.lab.wizard).home / "qcg-run" / RUN

    def attempt(self, name: str, number: str = "NN", point: str = "1", host: Host | None = None) -> Path:
        """The log directory of an attempt on the host. A resumed run has more than one tree of logs."""
        trees = sorted(self.far_directory(host).glob("log.*"), reverse=True)
        found = [path for tree in trees if (path := tree / "job" / point / name / number).exists()]
        return found[0] if found else self.far_directory(host) / "log" / "job" / point / name / number

    def status(self, name: str, number: str = "NN", point: str = "1", host: Host | None = None) -> dict[str, str]:
        """The job.status of an attempt."""
        path = self.attempt(name, number, point, host) / "job.status"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.partition("=")[::2] for line in lines if line)

    def marks(self, host: Host | None = None) -> list[str]:
        """The names of started jobs, once for each start."""
        return (host or self.lab.wizard).read(MARKS).split()

    def wait_for_marks(self, number: int, host: Host | None = None, timeout: float = PATIENCE) -> None:
        wait_for(lambda: len(self.marks(host)) >= number, timeout, lambda: f"{number} starts\n{self.explain()}")

    def wait_for_connection(self) -> None:
        """Wait for the first job of `connected`."""
        self.wait_for_states({"first": "SUCCEED"})

    def open_gate(self) -> None:
        """Start the jobs of `connected`."""
        self.lab.citadel.write(f"project/{GATE}", "")

    def release(self, host: Host | None = None) -> None:
        """Let the waiting jobs of a host end."""
        (host or self.lab.wizard).write(RELEASE, "")

    def check_starts(self, names: Iterable[str], *hosts: Host) -> None:
        """Each of these jobs was started exactly once, on one of these hosts (by default on wizard)."""
        counts = Counter(name for host in hosts or (self.lab.wizard,) for name in self.marks(host))
        expected = set(names)
        assert not expected - counts.keys(), f"never started: {sorted(expected - counts.keys())}"
        assert counts == Counter(expected), f"started again: {[name for name in counts if counts[name] != 1]}"

    def check_soon_connected(self, failed: int) -> None:
        """The connection was made soon after the network was back. `failed`: the number of attempts before that."""
        pauses = self.pauses()
        assert max(pauses, default=0.0) < SOON, pauses
        # One attempt may have been under way.
        assert len(pauses) <= failed + 1, pauses

    def check_nothing_left(self, *hosts: Host, timeout: float = 60) -> None:
        """No process of the run is left on the hosts (by default on wizard) after this time at the latest."""
        asked = hosts or (self.lab.wizard,)
        wait_for(lambda: not _processes_on(asked), timeout, lambda: f"the end of {_processes_on(asked)}")

    def supervisors(self, host: Host | None = None) -> list[Process]:
        """The supervisors of jobs on a host."""
        return [one for one in (host or self.lab.wizard).processes() if " supervise " in str(one)]

    def kill_supervisor(self, host: Host | None = None) -> None:
        processes.end(set(wait_for(lambda: self.supervisors(host), what="a supervisor")))


def _processes_on(hosts: Iterable[Host]) -> list[str]:
    return [f"{host}: {one}" for host in hosts for one in host.processes()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


@functools.cache
def _compile_modules() -> None:
    """Citadel shows the project read-only: without compiled modules, every command there would compile all of them."""
    compileall.compile_dir(ROOT / "src", quiet=2)
