"""Failures in groups of the same reason."""

from __future__ import annotations

import pytest

from qcg.pilotjob.report.failure_groups import MOST_KEPT, OTHER, FailureGroups, key_of, reason_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit code 1", "exit code 1 (attempt 3)"),
        ("the program 'a' was not found", "the program 'b' was not found"),
        ("/tmp/x/1.sh: cannot be started", "/tmp/x/77.sh: cannot be started"),
        ("The job exceeded its wall time of 3 s.", "The job exceeded its wall time of 40 s."),
    ],
)
def test_messages_that_differ_in_names_and_numbers_are_of_one_reason(one: str, other: str):
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("exit code 1", "exit code 2"), ("ended by signal 9", "ended by signal 11"), ("a is away", "b is")],
)
def test_other_messages_are_of_different_reasons(one: str, other: str):
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("exit code 3", "exit"),
        ("ended by signal 11 (SIGSEGV)", "signal"),
        ("The job exceeded its wall time of 3 s.", "timeout"),
        ("The job used 2 GiB of memory, more than the 1 GiB of its limit", "memory"),
        ("n1: the node was lost", "lost"),
        ("the program was not found", "other"),
    ],
)
def test_a_reason_is_a_word(message: str, reason: str):
    assert reason_of(message) == reason


def test_the_largest_groups_come_first_with_their_first_example():
    groups = FailureGroups()
    groups.add("exit code 2", (9, -1))
    groups.add("exit code 1", (8, 4))
    groups.add("exit code 1", (8, 2), 5)
    assert [(group.message, group.number, group.example) for group in groups.largest(8)] == [
        ("exit code 1", 6, (8, 2)),
        ("exit code 2", 1, (9, -1)),
    ]


def test_the_number_of_groups_is_bounded_whatever_the_messages_are():
    groups = FailureGroups()
    for number in range(3 * MOST_KEPT):
        groups.add(f"exit code {number}", (number, -1))
    found = groups.largest(10**6)
    assert len(found) == MOST_KEPT + 1
    assert found[0].message == OTHER
    assert sum(group.number for group in found) == 3 * MOST_KEPT
