"""Formats of times, durations and job histories in reports."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.host.usage import bytes_text

STATE_NAMES = tuple(state.name for state in State)
"""Names by the number of a state: faster than `state.name`, which matters for every job."""


AGENT_MEMORY = 32 << 20
"""Bytes. For each process, Linux reports at least the memory of the agent that started it, about 25 MiB. A lower peak
says nothing about the job."""


def peak_text(peak: int) -> str:
    """Peak memory for people: `159.5 MiB`, or `< 28 MiB` if the peak may be the memory of the agent."""
    return bytes_text(peak) if peak >= AGENT_MEMORY else f"< {(peak >> 20) + 1} MiB"


def timestamp(at: float) -> str:
    """`2018-01-11 16:02:27.740711`, local time."""
    second, microseconds = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_date_and_time(second)}.{microseconds:06d}"


def to_second(at: float) -> str:
    """`2018-01-11 16:02:27`, local time: for people."""
    return _date_and_time(int(at))


# Jobs are submitted and scheduled in batches, so many of them share these times.
shared_timestamp = lru_cache(maxsize=256)(timestamp)


def iso_timestamp(at: float) -> str:
    """`2018-01-11T16:02:27.740711`, local time."""
    return timestamp(at).replace(" ", "T")


def duration(seconds: float) -> str:
    """`0:00:06.082136`; hours may exceed 24. A clock that was set back gives 0, not a negative duration."""
    if 0 <= seconds < 59:
        return f"0:00:{seconds:09.6f}"
    second, microseconds = divmod(round(max(seconds, 0.0) * 1_000_000), 1_000_000)
    minutes, second = divmod(second, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{second:02d}.{microseconds:06d}"


def history_text(history: Iterable[tuple[State, float]]) -> str:
    """One line a state, each after a line break: the form of the `jobInfo` reply."""
    return "".join([f"\n{timestamp(at)}: {STATE_NAMES[state]}" for state, at in history])


@lru_cache(maxsize=1024)
def _date_and_time(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
