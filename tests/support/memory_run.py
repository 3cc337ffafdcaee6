"""A run in memory for displays: tests set its data, and read the actions of displays."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.watch.source import (
    Action,
    ActionRefused,
    AttemptLine,
    Dependency,
    JobDetails,
    JobLine,
    JobPage,
    JobQuery,
    Output,
)

NOW = 1_790_000_000.0
ORDER = [state.name for state in State]
SORT_KEYS: dict[str, Callable[[JobLine], Any]] = {
    "submitted": lambda line: line.submitted,
    "name": lambda line: line.name,
    "state": lambda line: ORDER.index(line.state),
    "started": lambda line: line.started or 0.0,
    "ended": lambda line: line.ended or 0.0,
    "duration": lambda line: (line.ended or NOW) - line.started if line.started is not None else 0.0,
    "memory": lambda line: line.max_memory,
}


def summary_of(lines: Sequence[JobLine] = (), **given: Any) -> RunSummary:
    """A summary with the counts of some jobs."""
    counts = dict(Counter(line.state for line in lines))
    values: dict[str, Any] = {
        "run": "run-1",
        "directory": "/home/me/demo/.qcgpjm-service-run-1",
        "at": NOW,
        "alive": True,
        "host": "n1",
        "started": NOW - 600,
        "ended": None,
        "jobs": counts,
        "iterations": {},
        "units": counts,
        "cores": 8,
        "used": 6,
        "gpus": 0,
        "gpus_used": 0,
        "running": counts.get("EXECUTING", 0),
        "nodes": (),
        "more_nodes": 0,
        "rates": None,
        "estimate": None,
        "waiting": (),
        "failed": (),
        "history": None,
        **given,
    }
    return RunSummary(**values)


class MemoryRun:
    """Implements RunSource."""

    def __init__(self, lines: Sequence[JobLine] = (), summary: RunSummary | None = None) -> None:
        self.lines = list(lines)
        self.current = summary_of(lines) if summary is None else summary
        self.outputs: dict[tuple[str, str], bytes] = {}
        self.attempts: dict[str, tuple[AttemptLine, ...]] = {}
        self.dependencies: dict[str, tuple[Dependency, ...]] = {}
        self.whys: dict[str, str] = {}
        self.queries: list[JobQuery] = []
        self.acts: list[tuple[Action, list[str]]] = []
        self.error: Exception | None = None
        """Raised by every reading method."""
        self.open = threading.Event()
        """Cleared: the methods that read jobs and output do not return."""
        self.open.set()
        self.closed = False
        self._changed = threading.Condition()

    def change(self, **given: Any) -> None:
        """Change the summary, and notify waiting threads."""
        with self._changed:
            self.current = replace(self.current, at=self.current.at + 1, **given)
            self._changed.notify_all()

    def summary(self) -> RunSummary:
        self._trouble()
        return self.current

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        self._trouble()
        with self._changed:
            self._changed.wait_for(lambda: self.current != known, timeout)
            return self.current

    def jobs(self, query: JobQuery) -> JobPage:
        self._wait_until_open()
        self.queries.append(query)
        found = [line for line in self.lines if _matches(line, query)]
        found.sort(key=SORT_KEYS[query.sort], reverse=query.descending)
        return JobPage(len(found), tuple(found[query.first : query.first + query.limit]))

    def job(self, name: str) -> JobDetails | None:
        self._wait_until_open()
        line = next((line for line in self.lines if line.name == name), None)
        if line is None:
            return None
        return JobDetails(
            line,
            self.whys.get(name, ""),
            self.attempts.get(name, ()),
            {stream: f"/home/me/demo/{name}.{stream}" for job, stream in self.outputs if job == name},
            self.dependencies.get(name, ()),
            '{"name":"x","execution":{"exec":"sleep","args":["10"]}}',
        )

    def output(self, name: str, stream: str, offset: int, limit: int = 65536) -> Output | None:
        self._wait_until_open()
        data = self.outputs.get((name, stream))
        if data is None:
            return None
        first = max(0, len(data) + offset) if offset < 0 else offset
        part = data[first : first + limit]
        return Output(f"/home/me/demo/{name}.{stream}", part.decode(errors="replace"), first + len(part), len(data))

    def act(self, action: Action, names: list[str]) -> str:
        self.acts.append((action, names))
        if any(name.startswith("precious") for name in names):
            raise ActionRefused(f"{names[0]} has ended: there is nothing to {action}.")
        return f"{action}: {len(names)} jobs."

    def close(self) -> None:
        self.closed = True

    def _trouble(self) -> None:
        if self.error is not None:
            raise self.error

    def _wait_until_open(self) -> None:
        self.open.wait()
        self._trouble()


def _matches(line: JobLine, query: JobQuery) -> bool:
    name, search = line.name.lower(), query.search.lower()
    fits = fnmatchcase(name, search) if set("*?") & set(search) else search in name
    return fits and (not query.states or line.state in query.states)
