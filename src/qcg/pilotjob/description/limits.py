"""Limits on numbers, on the length of job names, and on strings after variable substitution."""

from __future__ import annotations

LARGEST = 2**31 - 1
"""Maximum of every count and index: beyond any machine, and within every number format in use."""
LONGEST_NAME = 200
"""Maximum bytes of a job name in UTF-8: `NAME.12345.out` must still be a valid file name."""
LONGEST_NAME_WRITTEN = 2000
"""Maximum characters of a name before its variables are substituted."""
MAX_EXPANSION = 2**20
"""Maximum total length of the variable values in one job. The kernel starts no program with longer arguments."""
MAX_EXPANSION_OF_SUBMISSION = 2**28
"""Maximum total length of the variable values in one submission."""


class SubstitutionError(Exception):
    """Variables cannot be substituted; the message says why."""


class ExpansionError(SubstitutionError):
    """Variable substitution would exceed a limit."""


class Budget:
    """The number of characters that variable values may still add."""

    __slots__ = ("_left", "_sentence", "_whole")

    def __init__(self, most: int, sentence: str, whole: Budget | None = None) -> None:
        self._left = most
        self._sentence = sentence
        """Error message for an overdrawn budget."""
        self._whole = whole
        """Budget of the submission that this one is a part of."""

    def spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise ExpansionError(self._sentence)
        if self._whole is not None:
            self._whole.spend(characters)


def job_budget(whole: Budget | None = None) -> Budget:
    return Budget(MAX_EXPANSION, _OF_JOB, whole)


def submission_budget() -> Budget:
    return Budget(MAX_EXPANSION_OF_SUBMISSION, _OF_SUBMISSION)


_OF_JOB = (
    f"the values of its variables have more than {MAX_EXPANSION} characters; use fewer variables or shorter values"
)
_OF_SUBMISSION = (
    f"the values of the variables of this submission have more than {MAX_EXPANSION_OF_SUBMISSION} characters;"
    " submit the jobs in several parts, or as iterations of one job"
)
