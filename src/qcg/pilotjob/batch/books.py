"""What the allocations of one run tell each other, and whoever waits for them: a small file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from qcg.pilotjob.batch.errors import BatchError

SCRIPT = "batch.sh"
JOBS_LEFT = 4
"""The exit code of a run that is to be resumed."""
_FILE = "books.json"


class Books(msgspec.Struct, omit_defaults=True):
    """Written by the allocation that is there, one at a time."""

    allocations: list[str] = []
    """Slurm's job ids, in order; the last may be one that still waits for the one before it."""
    cancelled: str = ""
    """The job that was cancelled by its user: there are to be no further ones."""
    exit_code: int | None = None
    """Of the run, when it is over or no further allocation is asked for."""


def read_books(directory: Path) -> Books:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Books)
    except FileNotFoundError:
        return Books()
    except (OSError, msgspec.DecodeError) as error:
        raise BatchError(f"{directory / _FILE} cannot be read: {error}") from None


def write_books(directory: Path, books: Books) -> None:
    """At once: whoever reads sees the books before or after, never a part of them."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)  # not there when a printed script was submitted by hand
        with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{_FILE}.", delete=False) as file:
            file.write(msgspec.json.encode(books))
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, directory / _FILE)
    except OSError as error:
        raise BatchError(f"{directory / _FILE} cannot be written: {error.strerror}") from None
