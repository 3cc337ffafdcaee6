"""`Manager`, the client of a live manager, and `LocalManager`, which starts a manager of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.config import read_config
from qcg.pilotjob.api.connection_pool import ConnectionPool
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.local_process import ManagerProcess
from qcg.pilotjob.api.log import LogFile
from qcg.pilotjob.api.notebook import is_notebook
from qcg.pilotjob.api.target import target_of_run

__all__ = ["LocalManager", "Manager"]


class LocalManager(Manager):
    """Starts a manager process and connects to it. The manager ends with `finish`, at the end of a `with` block, and
    when this object is garbage-collected. It also ends when an exception leaves the `with` block, and when this process
    ends, however that happens: running jobs are then QUEUED again."""

    def __init__(self, server_args: Iterable[Any] | None = None, cfg: Mapping[str, Any] | None = None) -> None:
        """`server_args` are options of `qcg-pm-service`."""
        self._process = ManagerProcess(server_args or (), read_config(cfg).init_timeout)
        self.qcgpm_process = self._process.process
        self.qcgpm_conf = self._process.conf
        try:
            super().__init__(cfg=cfg, target=target_of_run(self._process.run_dir), own=True)
        except BaseException:
            self._process.terminate()
            self._process.end()
            raise
        # The manager detects the end of the program by itself.
        weakref.finalize(self, _end_later, self._pool, self._log_file, self._process).atexit = False

    def finish(self, cancel: bool = False) -> None:
        """End the manager and wait for its end. Running jobs are killed and CANCELED. Waiting jobs stay QUEUED for a
        manager that resumes the run; with `cancel` they are CANCELED, too. Calling it again does nothing."""
        if self._process.is_alive:
            try:
                super().finish(cancel)
            except ConnectionError:
                self._process.finish()
        self._process.end()
        self._disconnect()

    def cleanup(self) -> None:
        self.finish()

    def __exit__(self, *exception: object) -> None:
        if not any(exception):
            self.finish()
        else:
            # An interrupted or failed program does not cancel its jobs: they are requeued.
            self._process.end()
            self._disconnect()

    def kill_manager_process(self) -> None:
        """End the manager as `finish` does, also when it does not answer requests."""
        self._process.finish()
        self._process.end()

    @staticmethod
    def is_notebook() -> bool:
        """Whether this program is a notebook."""
        return is_notebook()


def _end_later(pool: ConnectionPool, log_file: LogFile, process: ManagerProcess) -> None:
    """End a dropped manager object in a thread: garbage collection must not block the program."""

    def end() -> None:
        pool.close()
        process.finish()
        process.end()
        log_file.close()

    with suppress(RuntimeError):  # no more threads can be started: the manager ends with this program
        threading.Thread(target=end, name="qcg-pm-end", daemon=True).start()
