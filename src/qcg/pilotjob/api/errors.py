"""What can go wrong for a client."""

from __future__ import annotations

import builtins
from pathlib import Path


class QCGPJMAError(Exception):
    """Base of all errors of the API."""


class InternalError(QCGPJMAError):
    """The service answered with something that makes no sense."""


class InvalidJobDescriptionError(QCGPJMAError):
    """A job description is wrong; the message says what and where."""


class JobNotDefinedError(QCGPJMAError):
    """There is no job of this name in the group."""


class ConnectionError(QCGPJMAError, builtins.ConnectionError):
    """The service cannot be reached, is gone, or refused the request."""

    perhaps_sent = True
    """Whether the request may have reached the service, and had its effect. Not when no connection was made."""


class NoManager(ConnectionError):
    """Nobody is at work where a manager was looked for."""

    perhaps_sent = False

    def __init__(self, sentence: str, run: Path | None = None, passed_over: tuple[str, ...] = ()) -> None:
        super().__init__(" ".join([*passed_over, sentence]))
        self.run = run
        """The run whose manager was at work there last."""
        self.passed_over = passed_over
        """Sentences about runs of other users that were there too."""


class RequestRefusedError(ConnectionError):
    """The service is there, and said no. A `ConnectionError`, because that is what programs have always caught."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Request failed - {reason}")
        self.reason = reason


class WrongArgumentsError(QCGPJMAError):
    """A call with arguments that cannot be meant."""


class FileError(QCGPJMAError):
    """A file cannot be read or written."""


class ServiceError(QCGPJMAError):
    """The service could not be started, or cannot do what was asked for."""


class TimeoutElapsed(Exception):
    """What was waited for did not happen in time."""


# The names of version 0.2.
InvalidJobDescription = InvalidJobDescriptionError
JobNotDefined = JobNotDefinedError
WrongArguments = WrongArgumentsError
