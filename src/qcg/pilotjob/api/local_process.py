"""The manager process of a LocalManager: start, liveness, end."""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from qcg.pilotjob.api.errors import ServiceError
from qcg.pilotjob.api.log import log

FINISH_TIMEOUT = 20.0
"""Seconds that a manager may take to end its jobs and itself, before it is killed."""

_SERVICE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
sys.argv[0] = "qcg-pm-service"
from qcg.pilotjob.cli.commands.service import main
main()
"""
"""Not `python -m`: a file in the working directory of the caller must not shadow a module of the manager."""


class ManagerProcess:
    """A manager process that ends on request, and when this process ends in any way: it reads from a pipe
    whose other end this process holds open. A byte in the pipe means `finish`."""

    def __init__(self, arguments: Iterable[Any], init_timeout: float) -> None:
        if isinstance(arguments, (str, bytes)):
            raise ServiceError(f"the options of a manager are a list, like ['--nodes', '2'], and not {arguments!r}")
        ready_reader, ready_writer = _pipe()
        self._lock = threading.Lock()
        lifeline_reader, self._lifeline = _pipe()
        _processes.add(self)
        command = [sys.executable, "-c", _SERVICE, "--net", *map(str, arguments)]
        command += ["--ready-fd", str(ready_writer), "--lifeline-fd", str(lifeline_reader)]
        with os.fdopen(os.memfd_create("said"), "w+b") as said:
            try:
                # A new session, so that Ctrl-C in the terminal reaches this program and not its jobs.
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    pass_fds=(ready_writer, lifeline_reader),
                    start_new_session=True,
                )
            finally:
                os.close(ready_writer)
                os.close(lifeline_reader)
            try:
                self.conf = _wait_until_ready(self.process, ready_reader, said, init_timeout)
            except BaseException:
                self.terminate()
                self.end()
                raise
            finally:
                os.close(ready_reader)

    @property
    def run_dir(self) -> Path:
        return Path(self.conf["run_dir"])

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        """End the manager with SIGTERM: running jobs are requeued."""
        if self.is_alive:
            self.process.terminate()

    def finish(self) -> None:
        """End the manager as the request `finish` does, without the network: running jobs are CANCELED."""
        with self._lock:
            if self._lifeline >= 0:
                with suppress(BrokenPipeError):  # the manager has ended
                    os.write(self._lifeline, b"\n")

    def end(self) -> None:
        """Close the pipe, wait for the end of the manager, and kill it after a timeout. Unfinished jobs are logged."""
        with self._lock:
            is_first = self._lifeline >= 0
            self._release()
        try:
            self.process.wait(FINISH_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if is_first:
            self._log_jobs_left()

    def _log_jobs_left(self) -> None:
        if self.process.returncode in (0, 1) or not hasattr(self, "conf"):
            return  # every job is final, or the manager did not start
        # Imported late: rarely needed, and slow to load.
        from qcg.pilotjob.runs.resume_hint import jobs_left_text
        from qcg.pilotjob.runs.unfinished import read_unfinished

        left = read_unfinished(self.run_dir)
        if left.unfinished:
            log.warning(
                "%s; continue with LocalManager(['--resume', '%s']) or `qcg-pm run --resume %s%s`",
                jobs_left_text(left.unfinished),
                self.run_dir,
                shlex.quote(str(self.run_dir)),
                " --release" if left.only_held else "",
            )

    def release_in_child(self) -> None:
        """Close the pipe in a forked child: the manager must end with the process that started it."""
        self._lock = threading.Lock()
        self._release()

    def _release(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)


_processes: weakref.WeakSet[ManagerProcess] = weakref.WeakSet()


def _release_in_child() -> None:
    for process in list(_processes):
        process.release_in_child()


os.register_at_fork(after_in_child=_release_in_child)


def _pipe() -> tuple[int, int]:
    """A pipe with descriptors above 2, which a program with closed standard streams would reuse."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _wait_until_ready(process: subprocess.Popen[bytes], ready: int, said: BinaryIO, timeout: float) -> dict[str, Any]:
    """Wait for the message of a manager that is ready; returns its configuration."""
    deadline = time.monotonic() + timeout
    message = b""
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    while not message.endswith(b"\n"):
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise ServiceError(f"the manager was not ready within {timeout:g} s")
        chunk = os.read(ready, 65536)
        if not chunk:
            process.wait()
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise ServiceError(f"the manager ended instead of starting (exit code {process.returncode}): {words}")
        message += chunk
    conf: dict[str, Any] = msgspec.json.decode(message)
    return conf
