"""The progress of a run in one line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report.run_summary import Estimate, Rates

_WORDS = ((State.FAILED, "failed"), (State.CANCELED, "cancelled"), (State.OMITTED, "omitted"))
WIDEST_BAR = 30
NARROWEST_BAR = 8
UNCERTAIN = 0.5
"""Relative uncertainty of the expected time above which a range is shown."""
_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))


def progress_line(state: CoreState) -> str:
    """The progress line, from the counters of the core alone: its cost does not depend on the number of jobs."""
    parts = [_done(state.job_counts, "jobs")]
    if sum(state.iteration_counts):
        parts.append(_done(state.iteration_counts, "iterations"))
    parts.append(f"{state.executing} running")
    # Iterations count separately, as in the bar and in the lines about failures.
    parts += [f"{state.unit_counts[end]} {word}" for end, word in _WORDS if state.unit_counts[end]]
    parts.append(f"{state.pool.taken_cores} of {state.pool.total_cores} cores busy")
    return ", ".join(parts)


def pace(rates: Rates | None, estimate: Estimate | None, now: float) -> str:
    """The rate and the time left: `12.5 ends/s, about 3 min left`; empty if neither is known."""
    parts = []
    if rates is not None and rates.ends:
        parts.append(f"{_number(rates.ends)} ends/s" if rates.ends >= 1 else f"{_number(60 * rates.ends)} ends/min")
    if estimate is not None:
        parts.append(time_left(estimate, now))
    return ", ".join(parts)


def time_left(estimate: Estimate, now: float) -> str:
    """`about 3 min left`, or `2 min to 9 min left` if the time is uncertain."""
    seconds = max(estimate.at - now, 0.0)
    earliest, latest = max(estimate.earliest - now, 0.0), max(estimate.latest - now, 0.0)
    if latest < 1:
        return "less than 1 s left"
    first, last = short_duration(earliest), short_duration(latest)
    if latest - earliest > UNCERTAIN * seconds and first != last:
        return f"{first} to {last} left"
    return f"about {short_duration(seconds)} left"


def short_duration(seconds: float) -> str:
    """A duration with its two largest units: `45 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{round(seconds / 60)} min"
    for (size, unit), (smaller, of_unit) in pairwise(_STEPS):
        if whole >= size:
            number, rest = divmod(round(seconds / smaller), size // smaller)
            return f"{number} {unit} {rest} {of_unit}" if rest else f"{number} {unit}"
    return f"{whole} s"


def progress_bar(counts: Sequence[int], width: int, *, ascii_only: bool = False) -> str:
    """A bar with its percentage: parts of successful, other ended, and remaining jobs. `counts`: numbers of
    jobs and iterations by state. Empty if there is no room, or nothing to show."""
    total, done = sum(counts), sum(counts[State.SUCCEED :])
    width = min(width - len(" 100 % "), WIDEST_BAR)
    if not total or width < NARROWEST_BAR:
        return ""
    ended = width * done // total
    failed = -(-width * counts[State.FAILED] // total) if counts[State.FAILED] else 0
    failed = min(failed, max(ended, 1))
    good, bad, left = "#x." if ascii_only else "█▓░"
    bar = good * max(ended - failed, 0) + bad * failed
    return f"{bar}{left * (width - len(bar))} {100 * done // total:3d} % "


def _done(counts: list[int], what: str) -> str:
    return f"{sum(counts[State.SUCCEED :])} of {sum(counts)} {what} done"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
