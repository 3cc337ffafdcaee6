from __future__ import annotations

import pytest

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.walltime import parse_wall_time


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("1h30m", 5400),
        ("90s", 90),
        ("2h", 7200),
        ("45m", 2700),
        ("1d", 86400),
        ("1d2h3m4s", 93784),
        ("1h2m3s", 3723),
        ("1h 30m", 5400),
        ("1H30M", 5400),
        (" 90s ", 90),
        ("1.5s", 1.5),
        ("01:30:00", 5400),
        ("1:00:00", 3600),
        ("100:00:01", 360001),
        ("1-12:00:00", 129600),
        ("PT60M", 3600),
        ("PT1H30M", 5400),
        ("P1DT2H", 93600),
        ("P2D", 172800),
        ("PT0.5S", 0.5),
        ("90", 90),
        (90, 90),
        (0.25, 0.25),
    ],
)
def test_a_wall_time_is_parsed_in_every_documented_format(given: str | float, seconds: float) -> None:
    assert parse_wall_time(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "3m2h",
        "1h30",
        "10 minutes",
        "1h30mx",
        "-5s",
        "30:00",
        "1:60:00",
        "1-24:00:00",
        "1:00:61",
        "P",
        "PT",
        "P1DT",
        "PT5",
        "1.5h",
        "h",
        "1e3",
        "१s",
        "1h\n2x",
        "9" * 5000 + "s",
    ],
)
def test_an_invalid_wall_time_is_rejected_with_the_accepted_formats(given: str) -> None:
    with pytest.raises(DescriptionError, match=r"is not a wall time; write it as 1h30m, 90s"):
        parse_wall_time(given)


@pytest.mark.parametrize("given", ["0s", "0h0m", "00:00:00", "PT0S", "0", 0, -1, -0.5, float("nan")])
def test_a_wall_time_of_zero_is_rejected(given: str | float) -> None:
    with pytest.raises(DescriptionError, match="longer than zero"):
        parse_wall_time(given)


@pytest.mark.parametrize("given", ["9999999999d", "9999999999:00:00", 10**400, 1e300, float("inf")])
def test_an_infinite_wall_time_is_rejected(given: str | float) -> None:
    with pytest.raises(DescriptionError, match="leave it out for no limit"):
        parse_wall_time(given)
