"""Read-only queries on the jobs of a run, whether or not its manager is alive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from qcg.pilotjob.api.client_helpers import Names, list_request, name_list, to_summary
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.report.run_summary import RunSummary


class Queries(ABC):
    """The interface of everything that answers read-only queries: a live manager, or the registry of an ended run."""

    @property
    @abstractmethod
    def run_dir(self) -> Path | None:
        """The run directory, where it is known."""

    @abstractmethod
    def system_status(self) -> dict[str, Any]:
        """Return the numbers of jobs and iterations by state; of a live manager also `System` and `Resources`."""

    def summary(self) -> RunSummary:
        """The data for displays: counts, resources, rates, the expected end, groups of reasons, and history."""
        return to_summary(self._data({"request": "summary"}))

    @abstractmethod
    def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the answer to a request."""

    def list(self, names: Names | None = None) -> dict[str, Any]:
        """All jobs, or the jobs with these names, with their states."""
        jobs: dict[str, Any] = self._data({"request": "listJobs"})["jobs"]
        return jobs if names is None else {name: jobs[name] for name in name_list(names) if name in jobs}

    def list_page(
        self,
        after: str | None = None,
        limit: int | None = 1000,
        *,
        states: Names | None = None,
        pattern: Names | None = None,
    ) -> dict[str, Any]:
        """The next jobs in the order of submission, after the one with the name `after`: `jobs` by name, and whether
        there are `more`. `states`: only jobs in these states. `pattern`: only jobs with these names, which may contain
        the wildcards `*`, `?` and `[...]`."""
        return self._data(list_request(after, limit, states, pattern))

    def status(self, names: Names) -> dict[str, Any]:
        """The states of jobs and iterations, as in the answer to `jobStatus`."""
        return self._data({"request": "jobStatus", "jobNames": name_list(names)})

    def info(self, names: Names, **params: Any) -> dict[str, Any]:
        """Everything about jobs; `withChilds=True` adds each iteration."""
        return self._data({"request": "jobInfo", "jobNames": name_list(names), "params": params})

    def info_parsed(self, names: Names, **params: Any) -> dict[str, JobInfo]:
        """The same as objects; names of jobs that do not exist are left out."""
        jobs = self.info(names, **params)["jobs"]
        return {name: JobInfo.from_job(entry["data"]) for name, entry in jobs.items() if entry["status"] == 0}

    def why(self, names: Names) -> dict[str, Any]:
        """Why jobs and iterations are in their states: each with a `sentence` for people, and a `reason` and figures
        for programs."""
        return self._data({"request": "why", "jobNames": name_list(names)})
