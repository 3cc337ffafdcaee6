"""Parsing of wall times such as `1h30m` or `01:30:00`."""

from __future__ import annotations

import re

from qcg.pilotjob.description.errors import quoted, single_problem

ACCEPTED = "1h30m, 90s, 2d, 01:30:00, 1-12:00:00, PT1H30M, or a number of seconds"
LONGEST = 1_000_000_000
"""Maximum in seconds, about 31 years: within the range of timers and dates."""

_AMOUNT = r"[0-9]{1,10}"
_SECONDS = r"[0-9]{1,10}(?:\.[0-9]{1,9})?"
_FORMS = (
    rf"(?P<s>{_SECONDS})",
    rf"(?:(?P<d>{_AMOUNT})d)?\s*(?:(?P<h>{_AMOUNT})h)?\s*(?:(?P<m>{_AMOUNT})m)?\s*(?:(?P<s>{_SECONDS})s)?",
    rf"(?:(?P<d>{_AMOUNT})-(?=[01]?[0-9]:|2[0-3]:))?(?P<h>{_AMOUNT}):(?P<m>[0-5][0-9]):(?P<s>[0-5][0-9])",
    rf"P(?:(?P<d>{_AMOUNT})D)?(?:T(?=[0-9])(?:(?P<h>{_AMOUNT})H)?(?:(?P<m>{_AMOUNT})M)?(?:(?P<s>{_SECONDS})S)?)?",
)
"""Compiled when a wall time is given: most runs have none."""
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_wall_time(given: str | float) -> float:
    """Convert a wall time to seconds; raises `DescriptionError` if it has no accepted format or is out of range."""
    seconds = _seconds(given) if isinstance(given, str) else given
    if seconds is None:
        raise single_problem(f"{quoted(given)} is not a wall time; write it as {ACCEPTED}")
    if not seconds > 0:
        raise single_problem(f"the wall time {quoted(given)} must be longer than zero")
    if seconds > LONGEST:
        raise single_problem(
            f"the wall time {quoted(given)} is longer than {LONGEST} seconds; leave it out for no limit"
        )
    return float(seconds)


def _seconds(text: str) -> float | None:
    for form in _FORMS:
        match = re.fullmatch(form, text.strip(), re.ASCII | re.IGNORECASE)
        parts = match.groupdict() if match else {}
        if any(parts.values()):
            return float(sum(float(amount) * _UNITS[unit] for unit, amount in parts.items() if amount))
    return None
