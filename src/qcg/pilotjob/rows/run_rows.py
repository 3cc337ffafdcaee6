"""The parameter files of a run, for its manager."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qcg.pilotjob.description.iteration import RowFile
    from qcg.pilotjob.rows.store import RowFiles


class RunRows:
    """Reads parameter files, and keeps copies of them in the run directory. The code for it is loaded when a job has
    such a file."""

    def __init__(self, root: str, run_dir: Path) -> None:
        """`root`: the directory that relative paths start at."""
        self._root = root
        self._run_dir = run_dir

    @cached_property
    def files(self) -> RowFiles:
        from qcg.pilotjob.rows.store import DIRECTORY, RowFiles

        return RowFiles(self._root, str(self._run_dir / DIRECTORY), builds=True)

    def row(self, file: RowFile, position: int) -> dict[str, Any]:
        return self.files.row(file, position)
