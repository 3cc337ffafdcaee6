"""What agents have written down and could not tell any more: those of an allocation that is over."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.common.uninterrupted import uninterrupted
from qcg.pilotjob.host.ledger import MOST_BYTES, Ledger, LedgerError
from qcg.pilotjob.host.records import Ended, Started
from qcg.pilotjob.host.safe_open import open_own

log = logging.getLogger(__name__)


UNSURE = "its agent was ended while it started this job; it may or may not have run"


class Untold(NamedTuple):
    records: list[Started | Ended]
    agents: set[str]
    """Who has written them down."""
    everything: bool
    """All of it could be read."""


def untold(run_dir: Path, agents: Collection[str], acked: Mapping[str, int]) -> Untold:
    """Records of agents that are not among `agents`, which tell by themselves, and that nobody has heard.

    `acked`: by agent, the last record that the registry has.
    """
    told = Untold([], set(), True)
    for path in sorted(run_dir.glob("agent-*.ledger")):
        name = path.stem.removeprefix("agent-")
        if name in agents:
            continue
        told.agents.add(name)
        try:
            written = path.stat().st_mtime
            ledger = Ledger(str(path))
        except (OSError, LedgerError) as error:
            log.error("%s What its agent has not told is lost.", error)
            told = told._replace(everything=False)
            continue
        told.records.extend(body for number, body in ledger.unacknowledged() if number > acked.get(name, 0))
        told.records.extend(
            Ended(id, written, -1, "lost", UNSURE, 0, 0.0, opened.grant)
            for id, opened in ledger.open.items()
            if not opened.pid
        )
        ledger.close()
    return told


def written_by(run_dir: Path, name: str) -> list[tuple[int, Started | Ended]]:
    """What an agent has written down and was not told that it is stored, by its number. The agent may still be at work
    on its ledger: it is read only."""
    path = run_dir / f"agent-{name}.ledger"
    with uninterrupted(), tempfile.TemporaryDirectory(prefix="qcg-pm-") as directory:
        copy = Path(directory) / path.name
        try:
            with os.fdopen(open_own(path, most_bytes=MOST_BYTES), "rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
            copy.chmod(0o600)
            ledger = Ledger(str(copy))
        except (OSError, LedgerError) as error:
            log.error("What the agent %s has not told is lost, for its ledger %s cannot be read: %s", name, path, error)
            return []
        try:
            return ledger.unacknowledged()
        finally:
            ledger.close()
