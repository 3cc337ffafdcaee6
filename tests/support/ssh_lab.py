"""Separate hosts with real SSH servers on this one machine (`tests/lab/ssh`), and their operations for tests."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import processes
from tests.support.ssh_host import Done, Host
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "lab" / "ssh"

PROGRAMS = {
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "rsync": "rsync",
    "ip": "iproute2",
    "iptables": "iptables",
    "unshare": "util-linux",
    "/usr/bin/python3": "python3",
}
"""The programs that the hosts need, and their Debian packages."""

_PREFIX = "ssh-lab-"


def why_impossible() -> str | None:
    """The reason why this machine cannot have these hosts; empty if it can."""
    if os.geteuid() != 0:
        return "Hosts with SSH servers of their own need root."
    missing = sorted(package for program, package in PROGRAMS.items() if shutil.which(program, path=_path()) is None)
    if missing:
        return f"Hosts with SSH servers of their own need packages that are not installed: {', '.join(missing)}."
    trial = ["unshare", "--net", "--uts", "--pid", "--mount", "--ipc", "--fork", "true"]
    if subprocess.run(trial, capture_output=True, check=False).returncode:
        return "Hosts with SSH servers of their own need namespaces, and root may not make them here."
    return None


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Call(NamedTuple):
    """One recorded call of `ssh` or `rsync` on citadel."""

    time: float
    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


class Lab:
    """The hosts: citadel (user boss), where managers run; wizard and wizard2 (user hobo), which share their home;
    tower (user hobo); and keep (user boss), which shares the home of citadel. Only citadel shows this project."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shown = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
        hidden = [one for one in shown if not one.is_relative_to("/usr")]
        choices = {
            "LAB_DIR": str(directory),
            "LAB_SHOW": ":".join(str(one) for one in hidden if not _is_below_any(one, hidden)),
            "PATH": _path(),
        }
        self._environ = {**os.environ, **choices}
        lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with (directory / "lab.out").open("w") as out:
                self._process = subprocess.Popen(
                    [LAB / "lab", directory],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    pass_fds=[lock],
                )
        finally:
            os.close(lock)  # the laboratory holds the lock from now on
        identity = processes.identify(self._process.pid)
        if identity is not None:
            processes.set_apart(identity)
        self._wait_until_ready()
        self._pid = int((directory / "lab.pid").read_text())
        homes = directory / "homes"
        self.citadel = Host(self, "citadel", "boss", 2001, homes / "citadel" / "boss")
        self.wizard = Host(self, "wizard", "hobo", 2000, homes / "wizard" / "hobo")
        self.wizard2 = Host(self, "wizard2", "hobo", 2000, homes / "wizard" / "hobo")
        self.tower = Host(self, "tower", "hobo", 2000, homes / "tower" / "hobo")
        self.keep = Host(self, "keep", "boss", 2001, homes / "citadel" / "boss")
        self.hosts = [self.citadel, self.wizard, self.wizard2, self.tower, self.keep]
        self._make_homes()

    def _make_homes(self) -> None:
        for host in (self.citadel, self.wizard, self.tower):
            host.make_home()

    def _wait_until_ready(self) -> None:
        ready = self.directory / "ready"
        try:
            wait_for(lambda: ready.exists() or self._process.poll() is not None, 60, "the hosts")
        finally:
            if not ready.exists():
                self.close()
        assert ready.exists(), f"The hosts did not start: {(self.directory / 'lab.out').read_text()}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        recorded = self.directory / "lab.pid"
        if recorded.exists():
            first = int(recorded.read_text())
            wait_for(lambda: not processes.is_alive(first), 30, "the end of the hosts")

    def run(self, script: str, *arguments: str) -> Done:
        """Run a script of `tests/lab/ssh` beside the hosts."""
        return subprocess.run(
            ["nsenter", f"--target={self._pid}", "--all", LAB / script, *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    # -- recorded commands ------------------------------------------------------------------------------------------

    def record_commands(self) -> None:
        """Record every later call of `ssh` and `rsync` on citadel, the calls of `ssh` by `rsync` included."""
        for program in ("ssh", "rsync"):
            self.citadel.write(f"bin/{program}", _RECORDER.format(program=program), mode=0o755)

    def recorded(self, program: str | None = None) -> list[Call]:
        """The calls of both programs, or of one."""
        lines = self.citadel.read(".recorded").split("\x1e")[:-1]
        calls = [Call(float(words[0]), tuple(words[1:])) for words in (line.split("\x1f") for line in lines)]
        return [call for call in calls if program in (None, call.argv[0])]

    # -- between tests ----------------------------------------------------------------------------------------------

    def clean_up(self) -> list[str]:
        """Restore the initial state of all hosts. Processes that a test left behind are ended and named."""
        left = [line for host in self.hosts for line in host.end_commands()]
        for host in self.hosts:
            host.recover()
        for host in self.hosts:
            left += host.left_behind()
        for host in self.hosts:
            host.reset()
        self._make_homes()
        return left


_RECORDER = """#!/bin/bash
printf -v line '\\x1f%s' {program} "$@"
printf '%s%s\\x1e' "$EPOCHREALTIME" "$line" >>~/.recorded
exec /usr/bin/{program} "$@"
"""


def _is_below_any(path: Path, others: list[Path]) -> bool:
    return any(path != other and path.is_relative_to(other) for other in others)


@contextmanager
def running_lab(parent: str = "/tmp") -> Iterator[Lab]:
    """All hosts, up and connected. Their file systems are below `parent`."""
    _remove_leftovers(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    directory.chmod(0o755)
    lab: Lab | None = None
    try:
        lab = Lab(directory)
        yield lab
    finally:
        if lab is not None:
            lab.close()
        shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(parent: str) -> None:
    """Remove the directories of laboratories of a killed pytest: no process holds their locks."""
    for directory in Path(parent).glob(f"{_PREFIX}*"):
        if not (directory / "lab.pid").exists():  # another pytest has just created or removed it
            continue
        try:
            lock = os.open(directory / "lock", os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def lent(lab: Lab) -> Iterator[Lab]:
    """The hosts for one test, which leaves no process behind on them."""
    left: list[str] = []
    try:
        yield lab
    finally:
        left += lab.clean_up()
    if left:
        pytest.fail("\n".join(["Left behind on the hosts:", *left]), pytrace=False)
