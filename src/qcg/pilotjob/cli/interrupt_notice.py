"""Ctrl-C that falls into the end of a run: jobs are over and written down, and only the report on them is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from qcg.pilotjob.cli.console import tell
from qcg.pilotjob.common.exit_codes import INTERRUPTED


class LastWords:
    """Whoever does not wait for the report still gets to know where it is."""

    def __init__(self, run_dir: Path | None = None) -> None:
        self.run_dir = run_dir
        """None as long as there is nothing to report on."""

    def __enter__(self) -> LastWords:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and self.run_dir is not None:
            tell(f"interrupted while the run closed; `qcg-pm report {self.run_dir}` tells how it ended")
            sys.exit(INTERRUPTED)
