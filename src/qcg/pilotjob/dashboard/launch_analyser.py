"""The analysis of launches for the dashboard, computed in a separate process because it needs much memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report.launch_analysis import analyse_launches
from qcg.pilotjob.watch.open import FollowedRun

PART_OF_TIME = 0.05
"""The largest share of time spent on analyses of a changing run."""
LONGEST = 600.0
"""Seconds after which an analysis is given up."""


class LaunchAnalyser:
    """Returns the latest analysis, and computes a newer one after a change of the run."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._computing = threading.Lock()
        self._latest = b""
        self._version = -1
        self._next = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def latest(self) -> bytes:
        """The analysis as JSON; waits for it. Raises JournalError when the registry cannot be read."""
        with self._computing:
            version = self._run.read_versioned(lambda _, version: version)
            if not self._latest or (version != self._version and time.monotonic() >= self._next):
                began = time.monotonic()
                self._latest = self._compute()
                ended = time.monotonic()
                self._version, self._next = version, ended + (ended - began) * (1 / PART_OF_TIME - 1)
            return self._latest

    def close(self) -> None:
        """End an analysis that is being computed."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()

    def _compute(self) -> bytes:
        # Without a shell, and without the token: the child gets the path of the run alone.
        command = [sys.executable, "-m", "qcg.pilotjob.dashboard.launch_analyser", str(self._run.run_dir)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            self._child = child
            if self._closed:
                child.kill()
            try:
                out, err = child.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                child.kill()
                raise JournalError("The analysis takes too long; qcg-pm report --analysis shows it.") from None
            finally:
                self._child = None
        if child.returncode:
            lines = err.decode(errors="replace").strip().splitlines()
            raise JournalError(f"The run could not be analysed: {lines[-1] if lines else 'it was interrupted'}")
        return out


def main(run_dir: Path) -> None:
    try:
        with snapshot(run_dir / FILE_NAME, whole=False) as connection:
            sys.stdout.buffer.write(msgspec.json.encode(analyse_launches(connection)))
    except JournalError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
