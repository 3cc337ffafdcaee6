"""The wording of explanations in command output."""

from __future__ import annotations


def after_state(sentence: str) -> str:
    """The explanation of a job, to be printed after its state: `exit code 3` instead of `it failed: exit code 3`."""
    return sentence.removeprefix("it failed: ")
