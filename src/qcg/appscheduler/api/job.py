"""Groups of jobs with the method names of version 0.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qcg.pilotjob.api.job import Jobs as CurrentJobs

__all__ = ["Jobs"]


class Jobs(CurrentJobs):
    def add(self, dAttrs: dict[str, Any] | None = None, **attrs: Any) -> Jobs:  # type: ignore[override]
        super().add(dAttrs, **attrs)
        return self

    def addStd(self, dAttrs: dict[str, Any] | None = None, **stdAttrs: Any) -> Jobs:
        super().add_std(dAttrs, **stdAttrs)
        return self

    def jobNames(self) -> list[str]:
        return self.job_names()

    def loadFromFile(self, filePath: str | Path) -> None:
        self.load_from_file(filePath)

    def saveToFile(self, filePath: str | Path) -> None:
        self.save_to_file(filePath)
