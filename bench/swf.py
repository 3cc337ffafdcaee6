"""Workload traces in the Standard Workload Format (SWF) of the Parallel Workloads Archive.

A trace is a text file with one line of 18 numbers for each job, and header lines that begin with `;`. -1 stands for
unknown. Read are the numbers 1 (job), 2 (submit time in seconds), 4 (run time), 5 (processors used), 8 (processors
requested) and 9 (requested time).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FIELDS = 18


class TraceJob(NamedTuple):
    number: int
    submitted: float
    seconds: float
    """How long it really runs."""
    cores: int
    limit: float
    """Its wall time; 0 if the trace has none."""


class TraceError(Exception):
    """A line that is not in the format."""


def read(path: Path) -> list[TraceJob]:
    """The jobs of a trace that ran, in the order of submission."""
    with path.open(errors="replace") as lines:
        return parse(lines, str(path))


def parse(lines: Iterable[str], name: str = "trace") -> list[TraceJob]:
    jobs = []
    for number, line in enumerate(lines, 1):
        text = line.partition(";")[0].split()
        if not text:
            continue
        try:
            values = [float(word) for word in text]
        except ValueError:
            raise TraceError(f"{name}, line {number}: {line.strip()!r} has something else than numbers") from None
        if len(values) < FIELDS:
            raise TraceError(f"{name}, line {number}: {len(values)} numbers; a job of an SWF trace has {FIELDS}")
        cores = int(values[7] if values[7] > 0 else values[4])
        if values[3] > 0 and cores > 0:
            jobs.append(TraceJob(int(values[0]), values[1], values[3], cores, max(values[8], 0.0)))
    return sorted(jobs, key=lambda job: (job.submitted, job.number))


def write(path: Path, jobs: Iterable[TraceJob], cores: int, comment: str) -> None:
    """Write jobs as a trace; what is unknown is -1."""
    lines = [f"; Version: 2.2\n; MaxProcs: {cores}\n; Note: {comment}\n"]
    for job in jobs:
        values = [job.number, round(job.submitted), -1, round(job.seconds), job.cores, -1, -1, job.cores]
        values += [round(job.limit) or -1, -1, 1, *[-1] * 7]
        lines.append(" ".join(map(str, values)) + "\n")
    path.write_text("".join(lines))
