"""The marker of a remote host in the run directory: `hosts/NAME`, written before the first connection.

A resumed manager finds by it which hosts may have attempts, and commands show the state of hosts without asking one.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from qcg.pilotjob.host.safe_open import UnsafeFile, open_own

log = logging.getLogger(__name__)

DIRECTORY = "hosts"
FORGOTTEN = "forgotten"
"""The state of a host that a user has given up."""
_MOST_BYTES = 1 << 20


class MarkedState(Struct, frozen=True, omit_defaults=True):
    """The state of a remote host in a run."""

    state: str = "unused"
    """`unused`, `connecting`, `connected`, `unreachable`, `closed` or `forgotten`."""
    since: float = 0.0
    """Seconds since the epoch."""
    address: str = ""
    channel: str = ""
    """`serve` or `one-shot`: the one in use."""
    error: str = ""
    """Why it is unreachable."""
    run_dir: str = ""
    """The run directory there, absolute."""
    hostname: str = ""
    python: str = ""
    notices: list[str] = []
    tree: str = ""
    """The directory on this side with logs that are retrieved from the host; empty: none are."""

    @property
    def may_have_attempts(self) -> bool:
        return self.state not in ("unused", "closed", FORGOTTEN)


class HostMarker:
    """Writes the state of one host."""

    def __init__(self, run_dir: Path, name: str, state: MarkedState | None = None) -> None:
        """`state`: the one that is written there; by default that of a host without a marker."""
        self._path = run_dir / DIRECTORY / name
        self.state = state or MarkedState()

    def set(self, state: str, **values: object) -> None:
        """Change the state, keeping what is not given. Raises OSError."""
        changes: dict[str, object] = {"error": "", **values}
        if state != self.state.state:
            changes["since"] = time.time()
        new = msgspec.structs.replace(self.state, state=state, **changes)
        if new == self.state:
            return
        self.state = new
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(new) + b"\n")
        temporary.replace(self._path)

    def set_or_log(self, state: str, **values: object) -> None:
        """Change the state; a marker that cannot be written is logged."""
        try:
            self.set(state, **values)
        except OSError as error:
            log.error("the state of %s cannot be written: %s", self._path.name, error)


def read_states(run_dir: Path) -> dict[str, MarkedState]:
    """The states of all hosts that a run has used. An unreadable marker counts as one of a host with attempts."""
    states = {}
    try:
        paths = sorted((run_dir / DIRECTORY).iterdir())
    except OSError:
        return {}
    for path in paths:
        if path.name.startswith("."):
            continue
        try:
            with os.fdopen(open_own(path, most_bytes=_MOST_BYTES), "rb") as file:
                states[path.name] = msgspec.json.decode(file.read(), type=MarkedState)
        except (OSError, UnsafeFile, msgspec.DecodeError):
            states[path.name] = MarkedState("unreachable", error=f"{path} cannot be read")
    return states


def forgotten_message(name: str) -> str:
    """Why attempts on a host that was given up have ended."""
    return f"its host {name} was given up with `qcg-pm hosts forget`"


def read_directories(run_dir: Path) -> dict[str, tuple[str, str]]:
    """For each host that a run has used, its run directory, and the local tree for retrieved logs."""
    return {name: (state.run_dir, state.tree) for name, state in read_states(run_dir).items()}
