"""The history of a run in bins, and rates, computed without a clock and files."""

from __future__ import annotations

import pytest

from qcg.pilotjob.report.history import HistoryBins
from qcg.pilotjob.report.rates import RateWindow
from qcg.pilotjob.report.run_summary import MOST_BINS


def test_use_is_spread_over_the_bins_that_it_covers():
    bins = HistoryBins(100.0)
    bins.add_use(100.5, 102.25, 4, 8)
    assert bins.history().busy == (2.0, 4.0, 1.0)
    assert bins.history().cores == (4.0, 8.0, 2.0)


def test_use_before_the_first_submission_does_not_count():
    bins = HistoryBins(100.0)
    bins.add_use(90.0, 101.0, 4, 4)
    assert sum(bins.history().busy) == 4.0


def test_the_width_doubles_when_there_are_too_many_bins_and_nothing_is_lost():
    bins = HistoryBins(0.0)
    for second in range(5 * MOST_BINS):
        bins.add_use(second, second + 1, 3, 4)
        bins.count(second, starts=2, ends=1, failures=second % 2)
    found = bins.history()
    assert found.width == 8.0
    assert len(found.busy) <= MOST_BINS
    assert sum(found.busy) == pytest.approx(3 * 5 * MOST_BINS)
    assert sum(found.cores) == pytest.approx(4 * 5 * MOST_BINS)
    assert (sum(found.starts), sum(found.ends), sum(found.failures)) == (
        10 * MOST_BINS,
        5 * MOST_BINS,
        5 * MOST_BINS // 2,
    )
    assert found.busy[3] == pytest.approx(3 * 8)


def test_a_later_history_is_added_where_it_belongs():
    earlier, later = HistoryBins(0.0, 4.0), HistoryBins(8.0, 1.0)
    earlier.add_use(0.0, 4.0, 1, 2)
    earlier.count(1.0, starts=1)
    later.add_use(8.0, 12.0, 2, 2)
    later.count(9.5, ends=3)
    earlier.merge(later)
    found = earlier.history()
    assert found.busy == (4.0, 0.0, 8.0)
    assert found.starts == (1, 0, 0)
    assert found.ends == (0, 0, 3)


def test_rates_are_those_of_the_last_minute():
    window = RateWindow(0.0)
    for second in range(1, 301):
        window.add(second, starts=10 * second, ends=5 * second)
    rates = window.rates(300.0)
    assert rates is not None
    assert (rates.starts, rates.ends, rates.seconds) == (10.0, 5.0, 60.0)


def test_rates_of_rare_ends_are_those_of_a_longer_time():
    window = RateWindow(0.0)
    for minute in range(1, 31):
        window.add(60.0 * minute, starts=minute, ends=minute)
    rates = window.rates(1800.0)
    assert rates is not None
    assert rates.ends == pytest.approx(1 / 60)
    assert rates.seconds == pytest.approx(1800.0)


def test_there_is_no_rate_in_the_first_second_and_a_falling_one_in_silence():
    window = RateWindow(0.0)
    window.add(0.5, 100, 100)
    assert window.rates(0.6) is None
    shortly = window.rates(10.0)
    later = window.rates(50.0)
    assert shortly is not None
    assert later is not None
    assert shortly.ends == 10.0
    assert later.ends == 2.0
