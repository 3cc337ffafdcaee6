"""The interface from which displays read a run and act on it."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from qcg.pilotjob.report.run_summary import RunSummary

Sort = Literal["submitted", "name", "state", "started", "ended", "duration", "memory"]
Action = Literal["cancel", "rerun", "hold", "release"]


class JobQuery(Struct, frozen=True):
    """Which jobs to list."""

    search: str = ""
    """Part of a name, or a pattern with `*` and `?`; upper and lower case are the same."""
    states: tuple[str, ...] = ()
    """States of jobs; all without any."""
    job: str = ""
    """List the iterations of this job instead of jobs."""
    sort: Sort = "submitted"
    descending: bool = False
    first: int = 0
    """How many to skip."""
    limit: int = 100


class JobLine(Struct, frozen=True):
    """A job or an iteration in a list."""

    name: str
    state: str
    submitted: float
    started: float | None = None
    """Start of its last attempt, or of the first iteration."""
    ended: float | None = None
    attempts: int = 0
    exit_code: int | None = None
    message: str = ""
    grant: str = ""
    """Nodes and cores, as in `n1[0:1],n2[0]`."""
    cpu_efficiency: float | None = None
    max_memory: int = 0
    """Peak memory in bytes; 0 where it is not known."""
    iterations: dict[str, int] = {}
    """Numbers of iterations by state, of an iterated job."""


class JobPage(Struct, frozen=True):
    total: int
    """The number of jobs that the query matches."""
    lines: tuple[JobLine, ...]


class AttemptLine(Struct, frozen=True):
    """One attempt of a job or iteration."""

    number: int
    state: str
    cause: str = ""
    """Why it was repeated, as in `retry.on`; empty for the last one."""
    scheduled: float | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    grant: str = ""
    message: str = ""
    cpu_seconds: float | None = None
    cpu_efficiency: float | None = None
    max_memory: int = 0
    read: int = 0
    written: int = 0
    rerun_at: float | None = None
    """When the job was run again after it; None for a retry."""


class Dependency(Struct, frozen=True):
    """An edge of the dependency graph: `job` waits for `on`."""

    job: str
    on: str
    kind: str
    """`after`, `afterany`, `afternotok` or `afterstart`."""


class JobDetails(Struct, frozen=True):
    line: JobLine
    why: str
    """Why it is in its state, in a sentence."""
    attempts: tuple[AttemptLine, ...]
    """In order; the last one is the current one."""
    streams: dict[str, str]
    """Paths of its output files: `stdout`, `stderr`."""
    dependencies: tuple[Dependency, ...]
    """Its prerequisites, and the jobs that wait for it."""
    description: str
    """Its description as JSON."""
    actions: tuple[Action, ...] = ()
    """Actions that its manager can carry out; none without a manager."""


class Output(Struct, frozen=True):
    """A part of an output file."""

    path: str
    text: str
    """Decoded; bytes that are not UTF-8 are replaced. May contain control characters: displays escape them."""
    next: int
    """Offset of the first byte after this part."""
    size: int
    """Bytes in the file now."""


class ActionRefused(Exception):
    """An action that could not be carried out, with the reason as a sentence."""


class RunSource(Protocol):
    """A run that displays read. All methods may be called from any thread."""

    def summary(self) -> RunSummary:
        """The current summary."""

    def wait(self, known: RunSummary, timeout: float) -> RunSummary:
        """The next summary that differs from a known one, or the known one after `timeout` seconds."""

    def jobs(self, query: JobQuery) -> JobPage: ...

    def job(self, name: str) -> JobDetails | None:
        """A job or an iteration (`job:3`); None if there is no such job."""

    def output(self, name: str, stream: str, offset: int, limit: int = 65536) -> Output | None:
        """Output of a job from an offset on, negative ones counted from the end; None if there is no such file."""

    def act(self, action: Action, names: list[str]) -> str:
        """Change jobs; returns a sentence about the result. Raises ActionRefused."""

    def close(self) -> None: ...
