"""The state of a chain of allocations: a small file, shared by the allocations of one run and by `--wait`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory, read_own

SCRIPT = "batch.sh"
_FILE = "chain.json"
_EARLIER_FILE = "books.json"
"""The file of chains that an earlier version began: processes of that version may still read and write it."""
MOST_BYTES = 1 << 20
"""Largest size of a file that is read."""

Content = TypeVar("Content", bound=msgspec.Struct)


class ChainState(msgspec.Struct, omit_defaults=True):
    """The state of a chain of allocations; the allocation that runs writes it."""

    allocations: list[str] = []
    """Ids of the allocations, in order; the last may still wait for the one before it."""
    cancelled: str = ""
    """The allocation that the user cancelled: no further one is submitted."""
    exit_code: int | None = None
    """The exit code of the run, once it is over or no further allocation follows."""
    idle: int = 0
    """Allocations in a row in which no job was started or ended."""
    stuck: bool = False
    """One more allocation like the last would be useless, so none is submitted."""


def read_chain_state(directory: Path) -> ChainState:
    return read_json(directory, _file(directory), ChainState) or ChainState()


def write_chain_state(directory: Path, state: ChainState) -> None:
    write_json(directory, _file(directory), state)


def _file(directory: Path) -> str:
    return _EARLIER_FILE if os.path.lexists(directory / _EARLIER_FILE) else _FILE


def read_json(directory: Path, name: str, form: type[Content]) -> Content | None:
    """The content of a file in the user's own directory; None when there is no such file."""
    try:
        check_own_directory(directory)
        return msgspec.json.decode(read_own(directory / name, MOST_BYTES), type=form)
    except FileNotFoundError:
        return None
    except UnsafeFile as unsafe:
        raise BatchError(unsafe.sentence) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchError(f"{directory / name} cannot be read: {error}") from None


def write_json(directory: Path, name: str, content: msgspec.Struct) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never a part."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)  # missing when a printed script was submitted by hand
        check_own_directory(directory)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{name}.", delete=False) as file:
            file.write(msgspec.json.encode(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, directory / name)
    except OSError as error:
        raise BatchError(f"{directory / name} cannot be written: {error.strerror}") from None
