"""One agent process on this machine: started, watched, or found again after a crash of the manager."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from qcg.pilotjob.agent.pidfile import is_alive, read_agent_pid


class AgentProcess:
    """Watched through a descriptor of its process, so that one which another manager started is watched as well."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self.exited = asyncio.Event()
        self._child = child
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._has_exited)

    def _has_exited(self) -> None:
        self._forget()
        if self._child is not None:
            self._child.wait()
        self.exited.set()
        self._on_exit()

    def _forget(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def kill(self) -> None:
        if not self.exited.is_set():
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def let_go(self) -> None:
        """Stop watching; the process lives on."""
        if not self.exited.is_set():
            self._forget()
            if self._child is not None:
                self._child.returncode = 0  # not ours to wait for any more: no warning about it


def start_agent(run_dir: Path, name: str, root_wd: Path, linger: float, on_exit: Callable[[], None]) -> AgentProcess:
    """In a session of its own, so that nothing that ends the manager ends the agent."""
    command = [sys.executable, "-m", "qcg.pilotjob.agent"]
    command += ["--run-dir", str(run_dir), "--name", name, "--linger", str(linger)]
    descriptor = os.open(run_dir / f"agent-{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            command,
            cwd=root_wd,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return AgentProcess(child.pid, child, on_exit)


def find_agent(run_dir: Path, name: str, on_exit: Callable[[], None]) -> AgentProcess | None:
    """The agent that an earlier manager left running on this machine, if it still does."""
    info = read_agent_pid(run_dir, name)
    if info is None or not is_alive(info):
        return None
    try:
        return AgentProcess(info.pid, None, on_exit)
    except ProcessLookupError:
        return None
