"""What the allocations of one run tell each other, and whoever waits for them: a small file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory, read_own

SCRIPT = "batch.sh"
_FILE = "books.json"
MOST_BYTES = 1 << 20
"""Of a note that is read."""

Note = TypeVar("Note", bound=msgspec.Struct)


class Books(msgspec.Struct, omit_defaults=True):
    """Written by the allocation that is there, one at a time."""

    allocations: list[str] = []
    """Slurm's job ids, in order; the last may be one that still waits for the one before it."""
    cancelled: str = ""
    """The job that was cancelled by its user: there are to be no further ones."""
    exit_code: int | None = None
    """Of the run, when it is over or no further allocation is asked for."""
    idle: int = 0
    """Allocations in a row in which no job was started or ended."""
    stuck: bool = False
    """Nothing would happen in one more allocation like the last: there is to be none."""


def read_books(directory: Path) -> Books:
    return read_note(directory, _FILE, Books) or Books()


def write_books(directory: Path, books: Books) -> None:
    write_note(directory, _FILE, books)


def read_note(directory: Path, name: str, form: type[Note]) -> Note | None:
    try:
        check_own_directory(directory)
        return msgspec.json.decode(read_own(directory / name, MOST_BYTES), type=form)
    except FileNotFoundError:
        return None
    except UnsafeFile as unsafe:
        raise BatchError(unsafe.sentence) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"{directory / name} cannot be read: {error}") from None


def write_note(directory: Path, name: str, note: msgspec.Struct) -> None:
    """At once: whoever reads sees the note before or after, never a part of it."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)  # not there when a printed script was submitted by hand
        check_own_directory(directory)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{name}.", delete=False) as file:
            file.write(msgspec.json.encode(note))
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, directory / name)
    except OSError as error:
        raise BatchError(f"{directory / name} cannot be written: {error.strerror}") from None
