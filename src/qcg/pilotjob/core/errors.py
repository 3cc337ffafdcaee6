"""Why the core says no."""

from __future__ import annotations


class CoreError(Exception):
    """A request that the core cannot carry out; the message says why."""


class SubmissionRejected(CoreError):
    """A submission that was refused as a whole, with a sentence for each thing that is wrong."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class SanityError(CoreError):
    """The core's own books do not agree with each other: a defect, found by `core.sanity`."""
