"""An agent started before its run is known, so that it loads its modules while the manager loads its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from qcg.pilotjob.cluster.registry import is_in_allocation


class PrestartedAgent:
    """A context manager. The agent is assigned to a run once; otherwise it is killed at the end of the block."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._process: subprocess.Popen[bytes] | None = _start() if wanted else None

    def assign(self, run_dir: Path, options: list[str]) -> subprocess.Popen[bytes] | None:
        """Make it the agent of this run. Returns None if it is not available."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        try:
            with process.stdin as order:
                order.write(json.dumps({"run_dir": str(run_dir), "options": options}).encode())
        except BrokenPipeError:
            process.wait()
            return None
        return process

    def __enter__(self) -> PrestartedAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()


def is_useful(resources: str, nodes: str | None, resume: str | None, environ: Mapping[str, str]) -> bool:
    """Whether a run with these options probably uses this machine, and has no agent yet."""
    here = resources == "local" or nodes is not None or (resources == "auto" and not is_in_allocation(environ))
    return here and resume is None


def _start() -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "qcg.pilotjob.agent", "--later"],
            cwd="/",  # where no file of the user can be imported by mistake
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None  # the start of the run tries again, and reports the error
