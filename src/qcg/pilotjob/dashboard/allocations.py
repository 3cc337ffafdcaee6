"""The allocations of a run, read from its files."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.journal.metadata import BATCH_SYSTEM, NODES_OF_ALLOCATION, RESOURCES, DamagedMetadata
from qcg.pilotjob.runs.submissions import recorded_allocations
from qcg.pilotjob.watch.open import FollowedRun


class AllocationLine(Struct, frozen=True):
    """An allocation that a manager of the run used, or that was submitted for the run."""

    id: str
    system: str
    """Name of the batch system."""
    current: bool
    """The latest manager used its nodes."""
    nodes: int | None = None
    """The number of nodes of the current allocation; None for other allocations."""
    cores: int | None = None


def allocations_of(run: FollowedRun) -> list[AllocationLine]:
    """The allocations in the order of their submission. The batch system is not queried, because that may take long."""
    try:
        submitted = recorded_allocations(run.run_dir)
    except BatchError:
        submitted = []
    current = run.read_registry(_current)
    lines = [AllocationLine(id, system, current=False) for system, id in submitted if id != current.id]
    return [*lines, current] if current.id else lines


def _current(connection: sqlite3.Connection) -> AllocationLine:
    try:
        sizes = RESOURCES.read(connection) or []
    except DamagedMetadata:
        sizes = []
    cores = sum([size.cores for size in sizes])
    system = BATCH_SYSTEM.read(connection)
    return AllocationLine(NODES_OF_ALLOCATION.read(connection), system, current=True, nodes=len(sizes), cores=cores)
