"""Times and their labels on an axis."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import NamedTuple

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STEPS = (
    *(base * 10.0**power for power in range(-3, 1) for base in (1, 2, 5)),
    *(10.0, 15.0, 30.0),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 28, 56, 112, 364)),
)


class Tick(NamedTuple):
    at: float
    label: str


def ticks(first: float, last: float, most: int) -> list[Tick]:
    """At most `most` round times of the local clock between two times; more only for runs of many years."""
    step = next((step for step in STEPS if (last - first) / step <= most), STEPS[-1])
    # Seconds since local midnight are round in every time zone.
    midnight = datetime.fromtimestamp(first).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight.timestamp()
    number = math.ceil((first - begin) / step - 1e-9)
    found = []
    day = ""
    while (at := _plus(midnight, begin, number * step, step)) <= last:
        local = datetime.fromtimestamp(round(at, 3))
        date = f"{local:%b} {local.day}"
        label = date if step >= DAY else _clock(local, step)
        if step < DAY and date != day and (day or last - first > DAY / 2):
            label = f"{date}, {label}"
        day = date
        found.append(Tick(at, label))
        number += 1
    return found


def _plus(midnight: datetime, begin: float, seconds: float, step: float) -> float:
    """Days have 23 or 25 hours when clocks are changed."""
    return (midnight + timedelta(seconds=seconds)).timestamp() if step >= HOUR else begin + seconds


def _clock(local: datetime, step: float) -> str:
    if step >= MINUTE:
        return f"{local:%H:%M}"
    if step >= 1:
        return f"{local:%H:%M:%S}"
    digits = math.ceil(-math.log10(step) - 1e-9)
    return f"{local:%H:%M:%S}.{local.microsecond:06d}"[: len("00:00:00.") + digits]


def in_words(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `4 min 10 s`, `12.3 s`, `250 ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    for large, small, names in ((DAY, HOUR, "d h"), (HOUR, MINUTE, "h min"), (MINUTE, 1.0, "min s")):
        if seconds >= large:
            whole, rest = divmod(round(seconds / small), round(large / small))
            first, second = names.split()
            return f"{whole} {first} {rest} {second}" if rest else f"{whole} {first}"
    return ""
