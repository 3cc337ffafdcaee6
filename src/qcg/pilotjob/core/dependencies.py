"""Who waits for whom: parsing `after`, finding cycles, and the books that say when a job may start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from qcg.pilotjob.core.records import Job

SAME_INDEX = "${it}"


class Prerequisite(Struct, frozen=True):
    """One entry of `after`, resolved."""

    job: Job
    position: int | None = None
    """A single iteration of it."""
    same_index: bool = False
    """Each iteration waits for the iteration with its own index."""


class Waiting:
    """What a job still waits for."""

    __slots__ = ("by_position", "whole")

    def __init__(self) -> None:
        self.whole = 0
        """Jobs, and single iterations of jobs, that all of this job waits for."""
        self.by_position: bytearray | None = None
        """For each iteration, how many iterations of its own index are still missing."""


# For all jobs without iterations: nobody can wait for one of those.
_NOWHERE: dict[int, list[Job]] = {}
_NOBODY: list[Job] = []


class Dependents:
    """Who waits for a job."""

    __slots__ = ("on_position", "same_index", "whole")

    def __init__(self, *, iterated: bool) -> None:
        self.whole: list[Job] = []
        self.on_position = {} if iterated else _NOWHERE
        self.same_index = [] if iterated else _NOBODY


def resolve(name: str, after: str, indices: range | None, find: Mapping[str, Job]) -> Prerequisite | str:
    """What one entry of `after` of the job `name` means, or a sentence that says why it means nothing."""
    wanted, separator, suffix = after.partition(":")
    job = find.get(wanted)
    if job is None:
        return f"job {name!r} waits for {after!r}, and there is no job {wanted!r}"
    if not separator:
        return Prerequisite(job)
    if job.iterations is None:
        return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iterations"
    if suffix.replace(" ", "") == SAME_INDEX:
        if indices is None:
            return f"job {name!r} waits for {after!r}, and has no iterations itself"
        missing = _first_missing(indices, job.iterations.indices)
        if missing is not None:
            return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iteration {missing}"
        return Prerequisite(job, same_index=True)
    position = job.iterations.position_of(suffix)
    if position is None:
        return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iteration {suffix}"
    return Prerequisite(job, position)


def _first_missing(wanted: range, existing: range) -> int | None:
    if wanted[0] in existing and wanted[-1] in existing and (len(wanted) == 1 or wanted.step % existing.step == 0):
        return None
    return next(index for index in wanted if index not in existing)


def find_cycle(prerequisites: Mapping[Job, Iterable[Prerequisite]]) -> list[Job] | None:
    """Jobs that wait for each other in a ring, in order, or None. Jobs that were there before cannot be part of one."""
    done: set[Job] = set()
    for root in prerequisites:
        if root in done:
            continue
        path: list[Job] = [root]
        on_path = {root}
        stack = [iter(prerequisites[root])]
        while stack:
            for prerequisite in stack[-1]:
                job = prerequisite.job
                if job in on_path:
                    return path[path.index(job) :]
                if job in prerequisites and job not in done:
                    path.append(job)
                    on_path.add(job)
                    stack.append(iter(prerequisites[job]))
                    break
            else:
                stack.pop()
                job = path.pop()
                on_path.discard(job)
                done.add(job)
    return None


def dependents_of(job: Job) -> Dependents:
    if job.dependents is None:
        job.dependents = Dependents(iterated=job.iterations is not None)
    return job.dependents
