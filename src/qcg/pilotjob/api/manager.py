"""`Manager` for a service that is there, `LocalManager` for a service of one's own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.config import read_config
from qcg.pilotjob.api.errors import ConnectionError, ServiceError
from qcg.pilotjob.api.target import target_of

__all__ = ["LocalManager", "Manager"]

FINISH_TIMEOUT = 20.0


class LocalManager(Manager):
    """Starts a service process and talks to it. The service ends with `finish`, at the end of a `with` block, and when
    this process ends, however it does."""

    def __init__(self, server_args: Iterable[Any] | None = None, cfg: Mapping[str, Any] | None = None) -> None:
        """`server_args` are options of `qcg-pm-service`."""
        config = read_config(cfg)
        arguments = [str(argument) for argument in server_args or ()]
        ready_reader, ready_writer = os.pipe()
        lifeline_reader, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "qcg.pilotjob.service", "--net", *arguments]
        command += ["--ready-fd", str(ready_writer), "--lifeline-fd", str(lifeline_reader)]
        with tempfile.TemporaryFile() as said:
            try:
                # A new session: an interrupt that is meant for this program is not meant for its jobs.
                self.qcgpm_process = subprocess.Popen(
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
                self.qcgpm_conf = _wait_until_ready(self.qcgpm_process, ready_reader, said, config.init_timeout)
            except BaseException:
                self._end_process(0.0)
                raise
            finally:
                os.close(ready_reader)
        try:
            self._connect(target_of(Path(self.qcgpm_conf["run_dir"])), cfg)
        except BaseException:
            self._end_process(0.0)
            raise

    def finish(self) -> None:
        """End the service and wait until it is gone; running jobs are ended with it. Calling it again does nothing."""
        if self.qcgpm_process.poll() is None:
            try:
                super().finish()
            except ConnectionError:
                if self.qcgpm_process.poll() is None:
                    self.qcgpm_process.terminate()
        self._end_process(FINISH_TIMEOUT)

    def cleanup(self) -> None:
        self.finish()
        super().cleanup()

    def kill_manager_process(self) -> None:
        """End the service with SIGTERM: it cancels its jobs and goes."""
        if self.qcgpm_process.poll() is None:
            self.qcgpm_process.send_signal(signal.SIGTERM)
        self._end_process(FINISH_TIMEOUT)

    def _end_process(self, timeout: float) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        try:
            self.qcgpm_process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.qcgpm_process.kill()
            self.qcgpm_process.wait()

    @staticmethod
    def is_notebook() -> bool:
        """Whether this program is a notebook."""
        shell = sys.modules.get("IPython")
        return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def _wait_until_ready(process: subprocess.Popen[bytes], ready: int, said: BinaryIO, timeout: float) -> dict[str, Any]:
    """What the service says of itself when it is ready."""
    deadline = time.monotonic() + timeout
    told = b""
    while not told.endswith(b"\n"):
        readable, _, _ = select.select([ready], [], [], max(deadline - time.monotonic(), 0))
        if not readable:
            raise ServiceError(f"the service was not ready within {timeout:g} s")
        chunk = os.read(ready, 65536)
        if not chunk:
            process.wait()
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise ServiceError(f"the service ended instead of starting (exit code {process.returncode}): {words}")
        told += chunk
    conf: dict[str, Any] = json.loads(told)
    return conf
