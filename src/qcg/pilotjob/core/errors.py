"""Errors that the core raises."""

from __future__ import annotations


class CoreError(Exception):
    """A request that the core cannot carry out; the message gives the reason."""


class SubmissionRejected(CoreError):
    """A submission that was rejected as a whole, with one sentence for each problem."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class SanityError(Exception):
    """The core's state contradicts itself: a defect, found by `core.sanity`. No CoreError, which refuses a request."""
