"""The progress line: bar, rate and time left."""

from __future__ import annotations

import pytest

from qcg.pilotjob.report.progress import pace, progress_bar, progress_line, short_duration, time_left
from qcg.pilotjob.report.run_summary import Estimate, Rates
from tests.core.core_driver import CoreDriver, job, machine


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (61, "1 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
        (86400, "1 d"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_duration_is_shown_with_its_largest_units(seconds: float, text: str):
    assert short_duration(seconds) == text


def test_the_time_left_is_a_range_only_if_it_is_uncertain():
    assert time_left(Estimate(160.0, 155.0, 165.0, ""), 100.0) == "about 1 min left"
    assert time_left(Estimate(400.0, 220.0, 640.0, ""), 100.0) == "2 min to 9 min left"
    assert time_left(Estimate(100.1, 100.0, 100.5, ""), 100.0) == "less than 1 s left"


def test_slow_rates_are_given_by_the_minute():
    assert pace(Rates(3.0, 12.4, 60.0), None, 0.0) == "12 ends/s"
    assert pace(Rates(3.0, 1.24, 60.0), None, 0.0) == "1.2 ends/s"
    assert pace(Rates(0.1, 0.05, 600.0), None, 0.0) == "3.0 ends/min"
    assert pace(Rates(0.0, 0.0, 600.0), None, 0.0) == ""
    assert pace(None, None, 0.0) == ""


@pytest.mark.parametrize(
    ("counts", "width", "bar"),
    [
        ([5, 0, 0, 5, 0, 0, 0], 17, "#####.....  50 % "),
        ([4, 0, 0, 4, 2, 0, 0], 17, "####xx....  60 % "),
        ([999, 0, 0, 0, 1, 0, 0], 17, "x.........   0 % "),
        ([0, 0, 0, 10, 0, 0, 0], 200, "#" * 30 + " 100 % "),
        ([0, 0, 0, 10, 0, 0, 0], 12, ""),
        ([0] * 7, 17, ""),
    ],
)
def test_the_bar_shows_what_succeeded_and_what_failed(counts: list[int], width: int, bar: str):
    assert progress_bar(counts, width, ascii_only=True) == bar


def test_failed_iterations_are_counted_one_by_one():
    driver = CoreDriver(machine(4))
    driver.submit(job("it", its=3), job("single"))
    driver.schedule()
    for name in ("it:0", "it:2", "single"):
        driver.end(name, exit_code=1)
    assert "1 of 2 jobs done, 2 of 3 iterations done, 0 running, 3 failed, " in progress_line(driver.core.state)
