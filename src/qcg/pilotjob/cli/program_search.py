"""Warnings about programs and input files that do not exist, or cannot be used, on this machine."""

from __future__ import annotations

import os
import shutil

from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.description.errors import one_line, quoted
from qcg.pilotjob.description.model import JobDescription

MOST_SUGGESTIONS = 10
"""Missing programs for which a similar one is searched."""
SIMILARITY = 0.75
"""Cutoff for similar names: with a lower one, almost every short name would get a suggestion."""


class ProgramSearch:
    """Looks for the programs of jobs, each program once.

    A program that a module, a virtual environment or another job may bring is not searched."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        """The directory at which relative working directories of jobs start."""
        self._seen: set[str] = set()
        self._suggestions = 0
        self._on_path: list[str] | None = None

    def warnings_about_inputs(self, job: JobDescription) -> list[str]:
        """Warnings about the stdin and the virtual environment of a job, each once, unless another job may make
        them."""
        execution = job.execution
        if job.request.host or job.after or job.outcomes:
            return []
        found = []
        for key, path in (("stdin", execution.stdin), ("venv", execution.venv)):
            place = os.path.join(self._directory, execution.wd or "", path or "")
            if not path or "${" in place or place in self._seen:
                continue
            self._seen.add(place)
            if not os.path.exists(place):
                found.append(f"{key} {quoted(path)} does not exist ({one_line(place)})")
        return found

    def warnings_for(self, job: JobDescription) -> list[str]:
        """A warning if the program of a job was not found, and no earlier job has it."""
        execution = job.execution
        program = execution.exec
        if not program or job.request.host or execution.modules or execution.venv or "PATH" in execution.env:
            return []
        has_path = "/" in program
        if has_path and (job.after or job.outcomes):  # which may make it
            return []
        place = os.path.join(self._directory, execution.wd or "", program) if has_path else program
        if "${" in place or place in self._seen:
            return []
        self._seen.add(place)
        if has_path and os.path.isdir(place):
            return [f"the program {quoted(program)} is a directory"]
        if has_path and os.path.exists(place) and not os.access(place, os.X_OK):
            return [f"the program {quoted(program)} is not executable; chmod +x makes it so"]
        if os.path.lexists(place) if has_path else shutil.which(program) is not None:
            return []
        return [f"the program {quoted(program)} was not found here{self._suggestion(program, place)}"]

    def _suggestion(self, program: str, place: str) -> str:
        self._suggestions += 1
        if self._suggestions > MOST_SUGGESTIONS:
            return ""
        directory, slash, name = program.rpartition("/")
        known = _files_in(os.path.dirname(place)) if slash else self._programs_on_path()
        near = nearest(name[:100], known, SIMILARITY)
        return f"; did you mean {quoted(directory + slash + near)}?" if near is not None else ""

    def _programs_on_path(self) -> list[str]:
        if self._on_path is None:
            folders = dict.fromkeys(filter(None, os.environ.get("PATH", os.defpath).split(os.pathsep)))
            self._on_path = sorted({name for folder in folders for name in _files_in(folder)})
        return self._on_path


def _files_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
