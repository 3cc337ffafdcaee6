"""A run inside one of its allocations, when that ends. Whole runs are in `tests/slurm/test_sbatch.py`."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from qcg.pilotjob.batch import slurm
from qcg.pilotjob.batch.books import Books, write_books
from qcg.pilotjob.batch.errors import BatchError
from qcg.pilotjob.batch.inside import InAllocation


def test_when_slurm_is_about_to_kill_everything_it_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    patient: list[float] = []

    def call(command: Sequence[str], environ: Mapping[str, str], patience: float = 120.0) -> str:
        patient.append(patience)
        raise BatchError("scontrol had no answer")

    monkeypatch.setattr(slurm, "_call", call)
    write_books(tmp_path, Books(allocations=["7"]))
    inside = InAllocation(tmp_path, tmp_path / "run", 1, [], {"SLURM_JOB_ID": "7"})
    inside._on_term(signal.SIGTERM, None)
    assert patient == [2.0]
