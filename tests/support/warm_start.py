"""A plugin that starts commands without loading their modules anew: they are forks of `command_server.py`.

A command that was loaded anew takes 0.15 s of the processor, most of it for its modules, and a forked one 0.03 s; tests
start thousands of commands. `Command` is a `Popen` in every other respect. These start anew nevertheless:

- all commands of the long tier, and of tests with the markers `timed` and `cold_start`;
- commands with other options than a directory, an environment and streams;
- commands whose interpreter would start otherwise: with another locale or other variables for it, other limits, or on
  other cores.
"""

from __future__ import annotations

import array
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.command_server import LENGTH
from tests.support.tiers import per_tier

ROOT = Path(__file__).parents[2]

OF_INTERPRETER = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "ASAN_", "COVERAGE", "TZ")
"""Beginnings of the names of variables that are read when an interpreter or a library is loaded."""
PATIENCE = 60.0
"""Seconds until the answer of the server."""
LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
"""The limits of resources that a process inherits."""
OPTIONS = frozenset(("stdin", "stdout", "stderr", "text", "cwd", "env"))


class Server:
    """The process that has loaded the modules. It is started for the first command."""

    def __init__(self) -> None:
        # Both are open before the first test and until the end, so the leak check does not count them.
        self._connection, self._end = socket.socketpair()
        self._connection.settimeout(PATIENCE)
        self._process: subprocess.Popen[bytes] | None = None
        self._surroundings: object = None
        self._lock = threading.Lock()
        self._is_out_of_step = False

    def accepts(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork of the server is the same as an interpreter that is started now."""
        if self._is_out_of_step:
            return False
        surroundings = _surroundings(environment)
        with self._lock:
            if not self._is_alive() and surroundings == _surroundings(os.environ):
                self._start()
                self._surroundings = surroundings
            return self._is_alive() and surroundings == self._surroundings

    def _is_alive(self) -> bool:
        """A job host in the test process ends all its children, and so the server."""
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        program = "from tests.support.command_server import main; main()"
        line = [sys.executable, "-X", "faulthandler", "-c", program, str(self._end.fileno())]
        self._process = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[self._end.fileno()])
        process = processes.identify(self._process.pid)
        assert process is not None
        processes.set_apart(process)

    def fork(self, options: list[str], directory: str, environment: dict[str, str], streams: list[int]) -> int:
        """Start a command; returns its pid. It is a child of this process."""
        body = pickle.dumps((options, directory, environment))
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self._lock:
            try:
                self._connection.sendmsg([len(body).to_bytes(LENGTH, sys.byteorder)], control)
                self._connection.sendall(body)
                answer = self._connection.recv(LENGTH, socket.MSG_WAITALL)
            except BaseException:  # a late answer would be taken for that to the next request
                self._is_out_of_step = True
                raise
        pid = int.from_bytes(answer, sys.byteorder)
        if pid == 0:
            raise RuntimeError(f"{options} could not start in {directory}")
        return pid

    def close(self) -> None:
        self._connection.close()
        self._end.close()
        if self._process is not None:
            if self._is_out_of_step:
                self._process.kill()
            self._process.wait()


def _surroundings(environment: Mapping[str, str]) -> object:
    """What the start of an interpreter depends on."""
    variables = {name: value for name, value in environment.items() if name.startswith(OF_INTERPRETER)}
    limits = [resource.getrlimit(limit) for limit in LIMITS]
    return variables, limits, os.sched_getaffinity(0), _umask(), os.getresuid(), os.getresgid()


def _umask() -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("Umask:"))


class Command(subprocess.Popen[str]):
    """A command that the server forks. Everything but its start is the same as for other processes."""

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *more
    ) -> None:
        pipes = more[:6]
        inner = (pipes[0], pipes[3], pipes[5])  # of the pipes for stdin, stdout and stderr, or -1
        streams = [number if end < 0 else end for number, end in enumerate(inner)]
        assert _server is not None
        environment = dict(os.environ if env is None else env)
        try:
            self.pid = _server.fork(args[3:], os.path.abspath(cwd or os.curdir), environment, streams)
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True


_server: Server | None = None
_may_fork = False


def start(line: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start a command, `[sys.executable, "-X", "faulthandler", "-c" or "-m", ...]`: as a fork, or anew."""
    environment = options.get("env") or os.environ
    forks = _may_fork and _server is not None and options.keys() <= OPTIONS and _server.accepts(environment)
    return (Command if forks else subprocess.Popen)(line, **options)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cold_start: commands of the test load their modules anew")


def pytest_sessionstart() -> None:
    global _server
    if per_tier(1, 0):
        _server = Server()


def pytest_unconfigure() -> None:
    global _server
    if _server is not None:
        _server.close()
        _server = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _may_fork
    _may_fork = not any(item.get_closest_marker(name) for name in ("timed", "cold_start"))
    try:
        return (yield)
    finally:
        _may_fork = False
