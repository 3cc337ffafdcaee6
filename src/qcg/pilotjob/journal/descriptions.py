"""Descriptions of jobs, decoded on demand and cached while their jobs run."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.encoding import decode_spec, prerequisite_names
from qcg.pilotjob.description.iteration import Iteration
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.registry_reader import RegistryReader


class DamagedDescription(JournalError):
    """A description in the registry that no manager has written; the message names the job."""


def decode_description(spec: bytes, seq: int, name: str) -> JobDescription:
    """Decode the description of a job as the registry stores it."""
    try:
        return decode_spec(spec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedDescription(f"job {seq} ({name!r}): spec, its description: {error}") from None


def prerequisites_of(spec: bytes, seq: int, name: str) -> set[str]:
    """The names of the jobs that a job waits for, from its description as the registry stores it."""
    try:
        return prerequisite_names(spec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedDescription(f"job {seq} ({name!r}): spec, its description: {error}") from None


def iteration_of(description: JobDescription, seq: int, name: str, iterations: int) -> Iteration:
    """The iteration of a job that has this many iterations, as the registry says."""
    iteration = description.iteration
    try:
        if iteration is not None and len(iteration) == iterations:
            return iteration
    except (OverflowError, ValueError):  # more than Python can count, or steps of 0
        pass
    raise DamagedDescription(f"job {seq} ({name!r}): spec, its description: it is that of another job")


class Descriptions:
    """A cache of decoded descriptions."""

    def __init__(self, journal: RegistryReader) -> None:
        self._journal = journal
        self._kept: dict[int, JobDescription] = {}

    def keep(self, job: Job) -> JobDescription:
        """Return the description of a job that starts, and cache it: an iterated job starts many times."""
        description = self._kept.get(job.seq)
        if description is None:
            description = self._kept[job.seq] = self._decoded(job)
        return description

    def of(self, job: Job) -> JobDescription:
        """Return the description of any job, without caching it."""
        description = self._kept.get(job.seq)
        return self._decoded(job) if description is None else description

    def _decoded(self, job: Job) -> JobDescription:
        spec = job.spec if job.spec is not None else self._journal.spec_of(job.seq)
        assert spec is not None
        return decode_description(spec, job.seq, job.name)

    def drop(self, job: Job) -> None:
        """Free the memory of the description of a final job, which the registry has."""
        self._kept.pop(job.seq, None)
        job.spec = None

    def forget(self, job: Job) -> None:
        """Decode the description again when it is needed: it may be a new one."""
        self._kept.pop(job.seq, None)
