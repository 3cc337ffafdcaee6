"""What a report on a whole run says, as plain data."""

from __future__ import annotations

from msgspec import Struct


class Statistics(Struct, frozen=True):
    """Of durations in seconds."""

    count: int
    least: float
    median: float
    mean: float
    percentile95: float
    most: float


class Slow(Struct, frozen=True):
    """One of the longest runs."""

    name: str
    state: str
    seconds: float
    allocation: str


class Failure(Struct, frozen=True):
    """A job or an iteration that is FAILED."""

    name: str
    message: str
    exit_code: int | None
    stderr: str | None
    """The path of its standard error."""
    last_lines: list[str]
    """Of its standard error, or of its standard output where that is empty."""
    last_lines_of: str = ""
    """The file that they are from."""


class RunReport(Struct, frozen=True):
    directory: str
    """Of the run."""
    finished: bool
    """Every job is final."""
    at_work: bool
    """The manager is there. When it is not, and not every job is final, the run waits for another one."""
    jobs: dict[str, int]
    """How many are in each state; states with none are left out."""
    iterations: dict[str, int]
    """The same, of all iterated jobs together."""
    started: float | None
    """The first submission."""
    ended: float | None
    """The last thing that is known to have happened."""
    queue_times: Statistics | None
    """From submission to start, of everything that started."""
    run_times: Statistics | None
    """From start to end, of everything that ran and ended."""
    nodes: int | None
    cores: int | None
    busy_core_seconds: float
    utilisation: float | None
    """The part of all core-seconds between `started` and `ended` that runs had to themselves, from 0 to 1."""
    slowest: list[Slow]
    """The longest first."""
    failures: list[Failure]
    """The first ones, in the order of submission."""
    failed: int
    """How many there are in all."""
    omitted: list[str]
    """The first jobs that were never run, each with the reason."""
    unreadable: list[str] = []
    """What a damaged registry did not tell: all figures are without it."""
