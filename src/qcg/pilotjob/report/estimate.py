"""The expected end of a run, from waiting jobs and the durations of attempts.

The jobs with one request take the average of recent attempts with that request. All requests share the cores: the time
for one of them is the sum of its durations, divided by the number of attempts that fit at once. All together take the
sum of these times, and more if attempts held their cores for longer than they ran, or if they cannot be started fast
enough. A run lasts at least as long as its longest attempt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.workload import Load
from qcg.pilotjob.report.run_summary import Estimate

QUARTILE = 0.6745
"""Half of all values of a normal distribution lie within so many standard deviations of its mean."""
MOST_OVERHEAD = 1000.0
LEAST_DEVIATION = 0.05
"""Deviation of durations, relative to their average, that is always expected."""


class Left(NamedTuple):
    """Remaining work other than the loads, and limits on the speed of the run."""

    dependent: int = 0
    """Jobs and iterations that wait for others."""
    held: int = 0
    paused: int = 0
    overhead: float = 1.0
    """The time for which cores are held, divided by the time in which attempts run."""
    start_rate: float | None = None
    """Starts per second, if the rate of starts limits the run and not the cores."""


def estimate(now: float, loads: Sequence[Load], left: Left) -> Estimate | None:
    """The expected end; None if nothing is left, or no attempt has succeeded."""
    known = [load for load in loads if load.mean is not None and load.places > 0]
    counted = sum([load.waiting + load.running for load in known])
    guessed = sum([load.waiting + load.running for load in loads]) - counted + left.dependent + left.paused
    if not known or not counted + guessed:
        return None
    overhead = min(max(left.overhead, 1.0), MOST_OVERHEAD)
    seconds = sum([_seconds(load) for load in known]) * overhead
    if left.start_rate:
        seconds = max(seconds, sum([load.waiting for load in known]) / left.start_rate)
    longest = max([max(load.longest, load.mean or 0.0 if load.waiting else 0.0) for load in known])
    seconds = max(seconds, longest)
    more = guessed * _average(known) * overhead
    half = QUARTILE * math.hypot(math.sqrt(sum([_variance(load) for load in known])) * overhead, _last_spread(known))
    earliest, latest = max(seconds - half, 0.0) + more / 2, seconds + half + 3 * more
    expected = min(max(seconds + more, earliest), latest)
    return Estimate(now + expected, now + earliest, now + latest, _basis(known, counted, guessed, left))


def _seconds(load: Load) -> float:
    """Seconds that a load takes if it has all resources for itself."""
    return (load.waiting * (load.mean or 0.0) + load.remaining) / load.places


def _variance(load: Load) -> float:
    """The variance of these seconds: of the average that was learned, and of the durations to come."""
    number = load.waiting + load.running
    relative = _deviation(load) * math.sqrt(1 / max(load.ended, 1) + 1 / max(number, 1))
    return (_seconds(load) * relative) ** 2


def _deviation(load: Load) -> float:
    """The standard deviation of durations relative to their average, estimated from the longest one: the longest of n
    values is about sqrt(2 ln n) deviations above the average."""
    if not load.mean or load.ended < 2:
        return 1.0  # one duration says nothing about others
    above = max(load.slowest / load.mean - 1, 0.0)
    return LEAST_DEVIATION + min(above / math.sqrt(2 * math.log(load.ended)), 3.0)


def _last_spread(known: Sequence[Load]) -> float:
    """The deviation in seconds of the last attempt to end."""
    return max([_deviation(load) * (load.mean or 0.0) for load in known if load.waiting + load.running], default=0.0)


def _average(known: Sequence[Load]) -> float:
    """Seconds that a job of unknown duration adds: the average of ended jobs."""
    weights = [max(load.ended, 1) for load in known]
    each = [weight * (load.mean or 0.0) / load.places for weight, load in zip(weights, known, strict=True)]
    return sum(each) / sum(weights)


def _basis(known: Sequence[Load], counted: int, guessed: int, left: Left) -> str:
    ended = sum([load.ended for load in known])
    text = f"from the durations of {pluralize(ended, 'attempt')} that succeeded"
    if guessed:
        text += (
            f"; of {pluralize(counted + guessed, 'attempt')} left, {guessed} wait for other jobs or have a request of"
            " which no attempt has succeeded: they count as average"
        )
    if left.held:
        text += f"; {pluralize(left.held, 'held job')} left out"
    return text
