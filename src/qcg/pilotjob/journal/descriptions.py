"""Descriptions of jobs, decoded when they are needed and kept while their jobs run."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import Iteration, JobDescription
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.questions import Questions

_decode = msgspec.msgpack.Decoder(JobDescription).decode


class DamagedDescription(JournalError):
    """A description in the registry that no manager has written; the message names the job."""


def decode_description(spec: bytes, seq: int, name: str) -> JobDescription:
    """Decode the description of a job as the registry stores it."""
    try:
        return _decode(spec)
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
    def __init__(self, journal: Questions) -> None:
        self._journal = journal
        self._kept: dict[int, JobDescription] = {}

    def keep(self, job: Job) -> JobDescription:
        """The description of a job that starts; an iterated one starts many times and is decoded once."""
        description = self._kept.get(job.seq)
        if description is None:
            description = self._kept[job.seq] = self.of(job)
        return description

    def of(self, job: Job) -> JobDescription:
        description = self._kept.get(job.seq)
        if description is not None:
            return description
        spec = job.spec if job.spec is not None else self._journal.spec_of(job.seq)
        assert spec is not None
        return decode_description(spec, job.seq, job.name)

    def drop(self, job: Job) -> None:
        """The job is final: the journal has its description."""
        self._kept.pop(job.seq, None)
        job.spec = None
