"""The summary of a run that displays show: counts, resources, rates, expected end, reasons, and history.

A live manager fills it from counters, whatever the number of jobs; for a run without a manager it is computed from the
registry. `qcg-pm status`, `qcg-pm top`, the dashboard and metrics are made from it.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.core.job_states import State


class NodeSummary(Struct, frozen=True):
    """A node of the run, or a remote host."""

    name: str
    cores: int
    used: int
    """Cores granted to attempts."""
    gpus: float = 0
    gpus_used: float = 0
    state: str = "ready"
    """`ready`, `away`, `lost` or `drained`."""
    since: float | None = None
    """Time since which it is not ready."""
    reason: str = ""
    """Why it is not ready."""
    remote: bool = False
    """A remote host, whose cores do not count as cores of the run."""


class Group(Struct, frozen=True):
    """Jobs and iterations that wait, or have failed, for the same reason."""

    count: int
    reason: str
    """The reason as a word for programs, as `why` has it: `resources`, `dependencies`, `exit`, ..."""
    sentence: str
    """The reason of the example, for people."""
    example: str
    """The name of one of them; empty where none could be found without a search of all jobs."""
    last_lines: tuple[str, ...] = ()
    """The last lines of output of the example, for failures."""


class Rates(Struct, frozen=True):
    """Starts and ends of attempts per second."""

    starts: float
    ends: float
    seconds: float
    """The length of the time over which they were counted."""


class Estimate(Struct, frozen=True):
    """When the run is expected to end, if nothing is submitted."""

    at: float
    earliest: float
    latest: float
    """The run ends between `earliest` and `latest` with a probability of 50 %."""
    basis: str
    """The data it was computed from, in one sentence."""


class History(Struct, frozen=True):
    """Utilisation and throughput since the first submission, in bins of equal length."""

    first: float
    """Time at which the first bin begins."""
    width: float
    """Seconds in a bin. It doubles whenever the number of bins reaches its limit."""
    busy: tuple[float, ...] = ()
    """Core-seconds granted to attempts in each bin. The last bin is not over yet."""
    cores: tuple[float, ...] = ()
    """Core-seconds that the run had in each bin."""
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    failures: tuple[int, ...] = ()
    """Attempts that have failed, also repeated ones."""


class RunSummary(Struct, frozen=True):
    run: str
    """The id of the run."""
    directory: str
    """The run directory."""
    at: float
    """Time of this summary."""
    alive: bool
    """A manager runs."""
    host: str
    """The host of the manager; empty without one."""
    started: float | None
    """Time of the first submission."""
    ended: float | None
    """Time of the last end, when every job is final."""
    jobs: dict[str, int]
    """Numbers of jobs by state, for states with jobs."""
    iterations: dict[str, int]
    """Numbers of iterations by state, for states with iterations."""
    units: dict[str, int]
    """Numbers of iterations, and of jobs without iterations, by state: the units that are started one by one."""
    cores: int
    used: int
    gpus: float
    gpus_used: float
    running: int
    """Attempts that run."""
    nodes: tuple[NodeSummary, ...]
    """The nodes, unavailable ones first; at most `MOST_NODES`."""
    more_nodes: int
    """The number of nodes beyond these, all of them ready."""
    rates: Rates | None
    estimate: Estimate | None
    """None when nothing is left, or nothing is known yet."""
    waiting: tuple[Group, ...]
    """The largest groups of waiting jobs and iterations; held and paused ones are groups of their own."""
    failed: tuple[Group, ...]
    """The largest groups of failures."""
    history: History | None
    stalled: bool = False
    """The registry cannot be written, so nothing is started."""
    notices: tuple[str, ...] = ()
    """Sentences about trouble: unreachable hosts, drained nodes."""


MOST_NODES = 200
MOST_GROUPS = 8
MOST_BINS = 512


def progress_of(summary: RunSummary) -> tuple[int, int, int]:
    """How many iterations and jobs without iterations are final, how many of those without success, and how many there
    are."""
    units = summary.units
    final = {state: units.get(state.name, 0) for state in State if state.is_final}
    return sum(final.values()), sum(final.values()) - final[State.SUCCEED], sum(units.values())


def has_changed(before: RunSummary, after: RunSummary) -> bool:
    """Whether a summary differs from an earlier one by more than the passing of time."""
    return _steady(before) != _steady(after)


def _steady(summary: RunSummary) -> RunSummary:
    """The summary without parts that change over time alone: its time, rates, and the length of the last bins."""
    idle = not summary.running and not summary.used
    return replace(
        summary,
        at=0.0,
        rates=None if idle else summary.rates,
        estimate=None if idle else summary.estimate,
        history=None if idle else summary.history,
    )
