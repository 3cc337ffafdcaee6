"""A service process of one's own: started, watched and ended."""

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
"""Seconds that a service may take to end its jobs and itself, before it is killed."""

_SERVICE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
sys.argv[0] = "qcg-pm-service"
from qcg.pilotjob.cli.commands.service import main
main()
"""
"""Not `python -m`: a file in the directory of the caller must not be taken for a module of the service."""


class LocalService:
    """A service process that ends when it is told to, and when this process ends, however that happens: it reads from a
    pipe, whose other end this process holds. A byte in it means `finish`."""

    def __init__(self, arguments: Iterable[Any], init_timeout: float) -> None:
        if isinstance(arguments, (str, bytes)):
            raise ServiceError(f"the options of a service are a list, like ['--nodes', '2'], and not {arguments!r}")
        ready_reader, ready_writer = _pipe()
        self._lock = threading.Lock()
        lifeline_reader, self._lifeline = _pipe()
        _services.add(self)
        command = [sys.executable, "-c", _SERVICE, "--net", *map(str, arguments)]
        command += ["--ready-fd", str(ready_writer), "--lifeline-fd", str(lifeline_reader)]
        with os.fdopen(os.memfd_create("said"), "w+b") as said:
            try:
                # A new session: an interrupt that is meant for this program is not meant for its jobs.
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
        """End it with SIGTERM: running jobs are QUEUED again."""
        if self.is_alive:
            self.process.terminate()

    def finish(self) -> None:
        """End it as the request `finish` does, without the network: running jobs are CANCELED."""
        with self._lock:
            if self._lifeline >= 0:
                with suppress(BrokenPipeError):  # it has ended
                    os.write(self._lifeline, b"\n")

    def end(self) -> None:
        """Wait until it has ended; when that takes too long, it is killed. Jobs that are left are told in the log."""
        with self._lock:
            is_first = self._lifeline >= 0
            self._let_go()
        try:
            self.process.wait(FINISH_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if is_first:
            self._log_jobs_left()

    def _log_jobs_left(self) -> None:
        if self.process.returncode in (0, 1) or not hasattr(self, "conf"):
            return  # every job is final, or the service did not start
        # Needed seldom, and it takes time to load.
        from qcg.pilotjob.runs.discovery import unfinished
        from qcg.pilotjob.runs.resume_hint import are_left

        left = unfinished(self.run_dir)
        if left:
            log.warning(
                "%s; LocalManager(['--resume', '%s']) or `qcg-pm run --resume %s` continues with them",
                are_left(left),
                self.run_dir,
                shlex.quote(str(self.run_dir)),
            )

    def let_go_in_child(self) -> None:
        """After a fork: it ends with the process that started it, not with the last of its children."""
        self._lock = threading.Lock()
        self._let_go()

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)


_services: weakref.WeakSet[LocalService] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for service in list(_services):
        service.let_go_in_child()


os.register_at_fork(after_in_child=_let_go_in_child)


def _pipe() -> tuple[int, int]:
    """With numbers that a program whose standard streams are closed gives to nothing else."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _wait_until_ready(process: subprocess.Popen[bytes], ready: int, said: BinaryIO, timeout: float) -> dict[str, Any]:
    """What the service says of itself when it is ready."""
    deadline = time.monotonic() + timeout
    told = b""
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    while not told.endswith(b"\n"):
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise ServiceError(f"the service was not ready within {timeout:g} s")
        chunk = os.read(ready, 65536)
        if not chunk:
            process.wait()
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise ServiceError(f"the service ended instead of starting (exit code {process.returncode}): {words}")
        told += chunk
    conf: dict[str, Any] = msgspec.json.decode(told)
    return conf
