"""The wording of explanations in command output."""

from __future__ import annotations

MOST_EXPLAINED = 20
"""Most jobs that did not succeed for which the reason is shown."""


def after_state(sentence: str) -> str:
    """The explanation of a job, to be printed after its state: `exit code 3` instead of `it failed: exit code 3`."""
    return sentence.removeprefix("it failed: ")
