"""The jobs and iterations that are held: they wait until they are released."""

from __future__ import annotations

from collections.abc import Iterator

from qcg.pilotjob.core.records import Job


class Holds:
    """Holds of whole jobs and of single iterations. Costs nothing for jobs that are not held."""

    __slots__ = ("by_number", "iterated", "jobs", "positions")

    def __init__(self) -> None:
        self.jobs: dict[int, float] = {}
        """By job number, the time since which the whole job is held."""
        self.positions: dict[int, dict[int, float]] = {}
        """By job number and position, the time since which an iteration is held. 0 for an iteration that was released,
        while the rest of its job is held."""
        self.by_number: dict[int, Job] = {}
        """The jobs with any of these holds, by number."""
        self.iterated: dict[int, Job] = {}
        """The iterated jobs among `by_number`, by number."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.positions)

    def since(self, job: Job, position: int) -> float:
        """The time since which a job (position -1) or an iteration is held; 0 if it is not."""
        of_job = self.positions.get(job.seq)
        if of_job is not None and position in of_job:
            return of_job[position]
        return self.jobs.get(job.seq, 0.0)

    def has_any(self, job: Job) -> bool:
        """Whether the job or one of its iterations is held."""
        return job.seq in self.jobs or job.seq in self.positions

    def released(self, job: Job) -> list[int]:
        """The iterations that were released, while the rest of their job is held."""
        return [position for position, since in self.positions.get(job.seq, {}).items() if not since]

    def hold(self, job: Job, position: int, since: float) -> None:
        self.by_number[job.seq] = job
        if job.iterations is not None:
            self.iterated[job.seq] = job
        if position < 0:
            self.positions.pop(job.seq, None)
            self.jobs[job.seq] = since
        else:
            self.positions.setdefault(job.seq, {})[position] = since

    def release(self, job: Job, position: int) -> None:
        if position < 0:
            self.drop(job)
        elif job.seq in self.jobs:
            self.positions.setdefault(job.seq, {})[position] = 0.0
        else:
            of_job = self.positions[job.seq]
            del of_job[position]
            if not of_job:
                self.drop(job)

    def drop(self, job: Job) -> bool:
        """Forget all holds of a job; returns whether there were any."""
        self.by_number.pop(job.seq, None)
        self.iterated.pop(job.seq, None)
        whole, single = self.jobs.pop(job.seq, None), self.positions.pop(job.seq, None)
        return whole is not None or single is not None

    def items(self) -> Iterator[tuple[int, int, float]]:
        """Job number, position and time of each hold."""
        yield from ((seq, -1, since) for seq, since in self.jobs.items())
        for seq, of_job in self.positions.items():
            yield from ((seq, position, since) for position, since in of_job.items())
