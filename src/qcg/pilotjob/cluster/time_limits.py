"""Time limits of allocations as users write them."""

from __future__ import annotations

import re

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.walltime import parse_wall_time

ACCEPTED = "1h30m, 01:30:00, 90:00 (minutes and seconds), 90 (minutes), 1-12 (days and hours), PT1H30M, or unlimited"
LONGEST = 365 * 86400
"""Seconds; a longer limit is a mistake."""

_ENDLESS = ("unlimited", "infinite")
# Forms that batch systems read, and that wall times of jobs do not have or read otherwise.
_BATCH_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        r"(?P<m>[0-9]{1,8})(?::(?P<s>[0-5]?[0-9]))?",
        r"(?P<d>[0-9]{1,8})-(?P<h>[0-9]{1,2})(?::(?P<m>[0-5]?[0-9]))?(?::(?P<s>[0-5]?[0-9]))?",
    )
)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def time_limit(given: str) -> int | None:
    """Minutes, rounded up; None for no limit. In `--time`, a number alone is minutes."""
    text = given.strip()
    if text.lower() in _ENDLESS:
        return None
    seconds = _seconds(text)
    if seconds is None:
        raise BatchError(f"--time {given!r} is not a time; write it as {ACCEPTED}")
    if not 0 < seconds <= LONGEST:
        raise BatchError(f"--time {given!r} is not between a minute and a year; write it as {ACCEPTED}")
    return int(-(-seconds // 60))


def _seconds(text: str) -> float | None:
    for form in _BATCH_FORMS:
        match = form.fullmatch(text)
        if match:
            return sum(int(amount) * _UNITS[unit] for unit, amount in match.groupdict().items() if amount)
    try:
        return parse_wall_time(text)
    except DescriptionError:
        return None
