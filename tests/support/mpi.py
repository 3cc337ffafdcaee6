"""Real MPI programs, compiled once, and the output of their processes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "launch/ranks.c"

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Tests start more processes than there are cores: a waiting process must yield its core.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
"""Options of Open MPI for tests."""

_LINE = re.compile(
    r"rank=(\d+) size=(\d+) sum=(\d+) host=(\S+) cpus=(\S*) gpus=(\S*) marker=(\S+) venv=(\S+) args=(.*)"
)


class Rank(NamedTuple):
    """The output of one process."""

    rank: int
    size: int
    sum: int
    host: str
    cpus: tuple[int, ...]
    gpus: str
    marker: str
    venv: str
    args: str


def compiled(family: str, directory: Path, source: Path = SOURCE) -> Path:
    """The program for `openmpi` or `mpich`."""
    compiler = shutil.which(f"mpicc.{family}")
    if compiler is None:
        pytest.skip(f"{family} is not installed; tests/system-packages installs it")
    program = directory / f"{source.stem}.{family}"
    if not program.exists():
        subprocess.run([compiler, "-O1", "-o", program, source], check=True, timeout=60)
    return program


def ranks(text: str) -> list[Rank]:
    """The ranks in order; other lines are skipped."""
    found = [
        Rank(int(rank), int(size), int(total), host, tuple(map(int, cpus.split(","))), gpus, marker, venv, args)
        for rank, size, total, host, cpus, gpus, marker, venv, args in _LINE.findall(text)
    ]
    return sorted(found)
