"""Bounds on the size of names, and on what variables make of the strings of jobs."""

from __future__ import annotations

LONGEST_NAME = 200
"""Bytes of a job name in UTF-8: with an index and a suffix, such as `NAME.12345.out`, it is still a file name."""
LONGEST_NAME_WRITTEN = 2000
"""Characters of a name before its variables are substituted."""
MOST_ADDED = 2**20
"""Characters by which variables may lengthen the strings of one job. The kernel starts no program with so many."""
MOST_ADDED_IN_ALL = 2**28
"""The same for all jobs of one submission."""


class ExpansionError(Exception):
    """Variables would make strings too long; the message is a sentence."""


class Budget:
    """How many characters the values of variables may still have, all together."""

    __slots__ = ("_left", "_sentence", "_whole")

    def __init__(self, most: int, sentence: str, whole: Budget | None = None) -> None:
        self._left = most
        self._sentence = sentence
        """What to say when they have more."""
        self._whole = whole
        """The budget that this one is a part of."""

    def spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise ExpansionError(self._sentence)
        if self._whole is not None:
            self._whole.spend(characters)


def job_budget(whole: Budget | None = None) -> Budget:
    return Budget(MOST_ADDED, _OF_JOB, whole)


def submission_budget() -> Budget:
    return Budget(MOST_ADDED_IN_ALL, _OF_SUBMISSION)


_OF_JOB = f"its variables stand for more than {MOST_ADDED} characters; use them less often, or with shorter values"
_OF_SUBMISSION = (
    f"the variables of this submission stand for more than {MOST_ADDED_IN_ALL} characters; submit the jobs in several"
    " parts, or as iterations of one job"
)
