"""Errors of the client API."""

from __future__ import annotations

import builtins
from pathlib import Path


class QCGPJMAError(Exception):
    """Base of all errors of the API."""


class InternalError(QCGPJMAError):
    """The manager sent an invalid answer, or the client met a limit of its machine."""


class InvalidJobDescriptionError(QCGPJMAError):
    """A job description is wrong; the message says what and where."""


class JobNotDefinedError(QCGPJMAError):
    """There is no job with this name."""


class ConnectionError(QCGPJMAError, builtins.ConnectionError):
    """The manager cannot be reached, is gone, or refused the request."""

    perhaps_sent = True
    """Whether the request may have reached the manager and had its effect; False when no connection was made."""


class NoManager(ConnectionError):
    """There is no live manager in the directory."""

    perhaps_sent = False

    def __init__(self, sentence: str, run: Path | None = None, skipped: tuple[str, ...] = ()) -> None:
        super().__init__(" ".join([*skipped, sentence]))
        self.run = run
        """The newest run of the directory."""
        self.skipped = skipped
        """Sentences about runs of other users in the directory."""


class RequestRefusedError(ConnectionError):
    """The manager refused the request. A `ConnectionError`, because programs for earlier versions catch that."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Request failed - {reason}")
        self.reason = reason


class WrongArgumentsError(QCGPJMAError):
    """A call with invalid arguments."""


class FileError(QCGPJMAError):
    """A file cannot be read or written."""


class ServiceError(QCGPJMAError):
    """The manager could not be started, or cannot carry out the request."""


class TimeoutElapsed(Exception):
    """A wait ended at its timeout."""


# The names of version 0.2.
InvalidJobDescription = InvalidJobDescriptionError
JobNotDefined = JobNotDefinedError
WrongArguments = WrongArgumentsError
