"""A notice for Ctrl-C at the end of a run, when only its summary is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.common.exit_codes import INTERRUPTED


class InterruptNotice:
    """Context manager that prints how to see the summary when Ctrl-C interrupts it."""

    def __init__(self, run_dir: Path | None = None) -> None:
        self._run_dir = run_dir
        """None until the run has a registry."""

    def run_began(self, run_dir: Path) -> None:
        """The run has a registry, which a summary can be read from."""
        self._run_dir = run_dir

    def __enter__(self) -> InterruptNotice:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and self._run_dir is not None:
            echo_err(f"interrupted while the run closed; `qcg-pm report {self._run_dir}` shows the result")
            sys.exit(INTERRUPTED)
