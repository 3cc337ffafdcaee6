"""The deadline helper."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_for


def test_the_first_true_value_is_returned():
    answers = iter([None, "", "ready", "late"])
    assert wait_for(lambda: next(answers)) == "ready"


def test_a_condition_that_stays_false_fails_with_a_message():
    with pytest.raises(pytest.fail.Exception, match=r"Waited 0\.01 s in vain for the end; the last answer was 0\."):
        wait_for(lambda: 0, timeout=0.01, what="the end")


def test_a_message_function_is_called_at_the_deadline():
    seen: list[int] = []
    with pytest.raises(pytest.fail.Exception, match=r"in vain for the end after \d+ looks;"):
        wait_for(lambda: seen.append(1), timeout=0.01, what=lambda: f"the end after {len(seen)} looks")


def test_a_condition_without_a_name_is_described_by_its_source_line():
    with pytest.raises(pytest.fail.Exception, match=r"in vain for .*<lambda> of line \d+;"):
        wait_for(lambda: False, timeout=0.01)
