"""Records in the ledgers of agents that cannot send them any more."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.common.uninterrupted import uninterrupted
from qcg.pilotjob.host.ledger import MOST_BYTES, Ledger, LedgerError
from qcg.pilotjob.host.records import Ended, EndReason, Started
from qcg.pilotjob.host.safe_open import open_own

log = logging.getLogger(__name__)


UNSURE = "its agent was ended while it started this job; it may or may not have run"


class UnreportedRecords(NamedTuple):
    records: list[Started | Ended]
    agents: set[str]
    """Agents whose ledgers were read."""
    is_complete: bool
    """All ledgers could be read."""


def read_unreported(run_dir: Path, agents: Collection[str], acked: Mapping[str, int]) -> UnreportedRecords:
    """Unacknowledged records of agents that are not in `agents`. Those in `agents` report their records themselves.

    `acked`: by agent, the last record that is in the registry.
    """
    found = UnreportedRecords([], set(), True)
    for path in sorted(run_dir.glob("agent-*.ledger")):
        name = path.stem.removeprefix("agent-")
        if name in agents:
            continue
        found.agents.add(name)
        try:
            written = path.stat().st_mtime
            ledger = Ledger(str(path))
        except (OSError, LedgerError) as error:
            log.error("%s Records that its agent has not sent are lost.", error)
            found = found._replace(is_complete=False)
            continue
        found.records.extend(body for number, body in ledger.unacknowledged() if number > acked.get(name, 0))
        found.records.extend(
            Ended(id, written, -1, EndReason.LOST, UNSURE, 0, 0.0, opened.grant)
            for id, opened in ledger.open.items()
            if not opened.pid
        )
        ledger.close()
    return found


def read_ledger(run_dir: Path, name: str) -> list[tuple[int, Started | Ended]]:
    """The unacknowledged records in the ledger of an agent, with their numbers. A copy is read, because the agent may
    still write to it."""
    path = run_dir / f"agent-{name}.ledger"
    try:
        with _copied(path) as ledger:
            return ledger.unacknowledged()
    except (OSError, LedgerError) as error:
        log.error(
            "Records that agent %s has not sent are lost, because its ledger %s cannot be read: %s", name, path, error
        )
        return []


def count_open_attempts(run_dir: Path) -> int:
    """Number of attempts that have begun, and have no end in the ledgers of the run. Ledgers that cannot be read
    count as empty."""
    found = 0
    for path in run_dir.glob("agent-*.ledger"):
        with suppress(OSError, LedgerError), _copied(path) as ledger:
            found += len(ledger.open)
    return found


@contextmanager
def _copied(path: Path) -> Iterator[Ledger]:
    """A copy of a ledger."""
    with uninterrupted(), tempfile.TemporaryDirectory(prefix="qcg-pm-") as directory:
        copy = Path(directory) / path.name
        with os.fdopen(open_own(path, most_bytes=MOST_BYTES), "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        copy.chmod(0o600)
        ledger = Ledger(str(copy))
        try:
            yield ledger
        finally:
            ledger.close()
