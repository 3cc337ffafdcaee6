"""The report on a whole run, as plain data. `qcg-pm report --json` prints these fields."""

from __future__ import annotations

from msgspec import Struct


class Statistics(Struct, frozen=True):
    """Statistics of durations in seconds."""

    count: int
    least: float
    median: float
    mean: float
    percentile95: float
    most: float


class Slow(Struct, frozen=True):
    """One of the longest attempts."""

    name: str
    state: str
    seconds: float
    allocation: str
    cpu_efficiency: float | None = None
    """CPU time divided by the time of its cores, from 0 to 1; None if unknown."""
    max_memory: int = 0
    """Peak memory in bytes; 0 where it is not known."""
    requested_memory: int = 0
    """Bytes of memory that the job requested on each node; 0 without a request."""


class Failure(Struct, frozen=True):
    """A job or an iteration that is FAILED."""

    name: str
    message: str
    exit_code: int | None
    stderr: str | None
    """The path of the file with its standard error."""
    last_lines: list[str]
    """The last lines of its standard error, or of its standard output when stderr is empty."""
    last_lines_of: str = ""
    """The path of the file with these lines."""


class RunReport(Struct, frozen=True):
    directory: str
    """The run directory."""
    finished: bool
    """Every job is final."""
    at_work: bool
    """The manager is running. Without a manager, a run with unfinished jobs can be resumed."""
    jobs: dict[str, int]
    """Number of jobs by state, without states that no job is in."""
    iterations: dict[str, int]
    """Number of iterations of all jobs by state."""
    started: float | None
    """Time of the first submission."""
    ended: float | None
    """Time of the last known event."""
    queue_times: Statistics | None
    """From submission, or from a rerun or the end of the attempt before, to start: of the latest attempt of all jobs
    and iterations that started."""
    run_times: Statistics | None
    """From start to end, of all jobs and iterations that started and ended."""
    nodes: int | None
    cores: int | None
    busy_core_seconds: float
    utilisation: float | None
    """The part of all core-seconds between `started` and `ended` that was granted to jobs, from 0 to 1."""
    slowest: list[Slow]
    """The longest first."""
    failures: list[Failure]
    """The first ones, in the order of submission."""
    failed: int
    """Number of all failed jobs and iterations."""
    omitted: list[str]
    """The first OMITTED jobs, each with the reason."""
    unreadable: list[str] = []
    """Parts of a damaged registry that could not be read. All other fields leave them out."""
    cpu_seconds: float = 0.0
    """CPU time of all attempts whose usage is known."""
    cpu_efficiency: float | None = None
    """CPU time of these attempts divided by their core-seconds, without attempts on several nodes."""
    max_memory: int = 0
    """Peak memory of the largest attempt, in bytes; 0 where it is not known."""
    memory_efficiency: float | None = None
    """The largest ratio of peak memory to requested memory of an attempt. Attempts whose peak may be the memory of the
    agent do not count; None without other attempts that requested memory."""
    unlisted: str = ""
    """The job to which all failures beyond `failures` belong; empty if there are none, or if they belong to several
    jobs."""
    repeated: dict[str, int] = {}
    """Number of attempts after which their jobs were queued again, by cause, the most frequent first."""
