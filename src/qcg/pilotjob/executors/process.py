"""Processes that are agents or start agents on this machine: starts them, watches them, finds them after a crash."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qcg.pilotjob.agent.pidfile import is_alive, read_agent_pid
from qcg.pilotjob.cluster.registry import current_allocation
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.host.process_tree import Snapshot, read_process, send
from qcg.pilotjob.host.safe_open import open_own
from qcg.pilotjob.wire import descriptors

POLL_INTERVAL = 0.5
"""Seconds between two checks of a process where the kernel has no process descriptors."""


class WatchedProcess:
    """A process watched through a process descriptor, so that it need not be a child of this one."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self.exited = asyncio.Event()
        self._child = child
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._first = read_process(pid)
        self._descriptor = _descriptor_of(pid)
        self._next_check: asyncio.Handle | None = None
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._has_exited)
        else:
            # Later, also for a process that has exited: the caller has no WatchedProcess yet.
            self._next_check = self._loop.call_soon(self._check)

    def _check(self) -> None:
        """Poll, on kernels without process descriptors."""
        now = read_process(self.pid)
        if now is None or now.dead or self._first is None or now.start_ticks != self._first.start_ticks:
            self._has_exited()
        else:
            self._next_check = self._loop.call_later(POLL_INTERVAL, self._check)

    def _has_exited(self) -> None:
        self._forget()
        if self._child is not None:
            self._child.wait()
        self.exited.set()
        self._on_exit()

    def _forget(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to this process, never to a later one with its pid."""
        if self.exited.is_set():
            return
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):  # it has exited, and the event loop does not know it yet
                signal.pidfd_send_signal(self._descriptor, number)
        elif self._first is not None:
            send(self._first, number)

    def kill_alone(self) -> None:
        """Kill the process and its session, without ending processes that it has started on other machines.

        A command that starts a step may have a child that cancels the step when its parent dies: children go first.
        """
        if not self.exited.is_set():
            for process in sorted(
                Snapshot().session(self.pid), key=lambda found: (found.start_ticks, found.pid), reverse=True
            ):
                send(process, signal.SIGKILL)

    def let_go(self) -> None:
        """Stop watching; the process lives on."""
        if not self.exited.is_set():
            self._forget()
            if self._child is not None:
                self._child.returncode = 0  # so that the interpreter does not warn about a child that still runs


def _descriptor_of(pid: int) -> int:
    """A process descriptor; -1 on kernels before 5.3 and in some containers."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return -1
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return -1


def start_agent(
    run_dir: Path,
    name: str,
    linger: float,
    on_exit: Callable[[], None],
    *,
    pretend: bool = False,
    prestarted: PrestartedAgent | None = None,
) -> WatchedProcess:
    options = ["--run-dir", str(run_dir), "--name", name, "--linger", str(linger), "--parent", str(os.getpid())]
    options += ["--open-files", str(descriptors.GIVEN)]
    allocation = current_allocation(os.environ)
    options += allocation.agent_options() if allocation is not None else []
    if pretend:
        options.append("--pretend")
    if prestarted is not None and (child := prestarted.assign(run_dir, [*options, "--own-log"])) is not None:
        return WatchedProcess(child.pid, child, on_exit)
    command = [sys.executable, "-m", "qcg.pilotjob.agent", *options]
    return start_apart(command, run_dir, f"agent-{name}.log", None, on_exit)


def start_apart(
    command: list[str], run_dir: Path, log_name: str, environ: dict[str, str] | None, on_exit: Callable[[], None]
) -> WatchedProcess:
    """Start a process in a session of its own, so that signals to the manager do not reach it, and in the run
    directory, so that no file of the user can be imported by mistake."""
    descriptor = open_own(run_dir / log_name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        child = subprocess.Popen(
            command,
            cwd=run_dir,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=environ,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return WatchedProcess(child.pid, child, on_exit)


def find_agent(run_dir: Path, name: str, on_exit: Callable[[], None]) -> WatchedProcess | None:
    """The agent that an earlier manager left on this machine, if it still runs."""
    info = read_agent_pid(run_dir, name)
    if info is None or not is_alive(info):
        return None
    try:
        return WatchedProcess(info.pid, None, on_exit)
    except ProcessLookupError:
        return None
