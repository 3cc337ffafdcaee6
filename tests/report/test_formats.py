"""Formats of dates and durations."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.report import formats
from qcg.pilotjob.report.formats import duration, history_text, iso_timestamp, timestamp, to_second


@pytest.fixture
def in_warsaw(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        time.tzset()
        formats.shared_timestamp.cache_clear()
        formats._date_and_time.cache_clear()

    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1515682947.740711, "2018-01-11 16:02:27.740711"),
        (1515682947.0, "2018-01-11 16:02:27.000000"),
        (1515682947.9999999, "2018-01-11 16:02:28.000000"),
        (1528729347.5, "2018-06-11 17:02:27.500000"),
    ],
)
@pytest.mark.usefixtures("in_warsaw")
def test_a_date_is_local_time_with_microseconds(at: float, text: str):
    assert timestamp(at) == text
    assert iso_timestamp(at) == text.replace(" ", "T")


def test_for_people_a_date_ends_with_the_second():
    for at in (0.0, 1515682947.740711, 1515682947.9999999):
        assert to_second(at) == timestamp(int(at))[:19]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (6.082136, "0:00:06.082136"),
        (0.0, "0:00:00.000000"),
        (2.0, "0:00:02.000000"),
        (59.9999999, "0:01:00.000000"),
        (3661.5, "1:01:01.500000"),
        (30 * 3600.0, "30:00:00.000000"),
        (-1.5, "0:00:00.000000"),
    ],
)
def test_a_duration_has_hours_and_microseconds_always(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.usefixtures("in_warsaw")
def test_a_history_has_a_line_for_each_state():
    history = [(State.QUEUED, 1515682947.740711), (State.SUCCEED, 1515682948.0)]
    assert history_text(history) == "\n2018-01-11 16:02:27.740711: QUEUED\n2018-01-11 16:02:28.000000: SUCCEED"
    assert history_text([]) == ""
