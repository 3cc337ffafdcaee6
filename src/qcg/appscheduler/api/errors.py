"""The errors of the client, under the names of version 0.2 too."""

from __future__ import annotations

from qcg.pilotjob.api.errors import (
    ConnectionError,
    FileError,
    InternalError,
    InvalidJobDescription,
    InvalidJobDescriptionError,
    JobNotDefined,
    JobNotDefinedError,
    NoManager,
    QCGPJMAError,
    RequestRefusedError,
    ServiceError,
    TimeoutElapsed,
    WrongArguments,
    WrongArgumentsError,
)

__all__ = [
    "ConnectionError",
    "FileError",
    "InternalError",
    "InvalidJobDescription",
    "InvalidJobDescriptionError",
    "JobNotDefined",
    "JobNotDefinedError",
    "NoManager",
    "QCGPJMAError",
    "RequestRefusedError",
    "ServiceError",
    "TimeoutElapsed",
    "WrongArguments",
    "WrongArgumentsError",
]
