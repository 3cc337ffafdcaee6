"""Descriptions of jobs, decoded when they are needed and kept while their jobs run."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.questions import Questions

_decode = msgspec.msgpack.Decoder(JobDescription).decode


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
        return _decode(spec)

    def drop(self, job: Job) -> None:
        """The job is final: the journal has its description."""
        self._kept.pop(job.seq, None)
        job.spec = None
