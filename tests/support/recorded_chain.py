"""Files of a run in a chain of several allocations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.journal.metadata import BATCH_SYSTEM, NODES_OF_ALLOCATION, PUT_VALUE
from qcg.pilotjob.journal.registry_files import FILE_NAME
from qcg.pilotjob.runs.chain_state import ChainState, write_chain_state
from qcg.pilotjob.runs.submissions import Submission, free_directory, write_submission


def record_chain(run_dir: Path, *allocations: str) -> None:
    """Add a chain of Slurm jobs to a run that has ended; the latest manager ran in the last job."""
    directory = free_directory(run_dir)
    write_submission(directory, Submission(allocations[0], str(run_dir), AllocationSpec(), "slurm"))
    write_chain_state(directory, ChainState(allocations=list(allocations)))
    values = {NODES_OF_ALLOCATION: allocations[-1], BATCH_SYSTEM: "slurm"}
    with closing(sqlite3.connect(run_dir / FILE_NAME)) as registry, registry:
        registry.executemany(PUT_VALUE, [(key.name, key.encode(value)) for key, value in values.items()])
