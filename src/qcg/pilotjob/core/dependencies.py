"""Who waits for whom: parsing `after`, finding cycles, and the books that say when a job may start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice

from msgspec import Struct

from qcg.pilotjob.core.records import Job

SAME_INDEX = "${it}"
NEAR = 0.7
"""How similar an existing name must be to an unknown one to be suggested for it, from 0 to 1."""
MOST_COMPARED = 2000
"""Names among which the nearest one is looked for: comparing takes some microseconds each."""
MOST_SUGGESTIONS = 20
"""Unknown names of one submission for which others are suggested."""


class Prerequisite(Struct, frozen=True):
    """One entry of `after`, resolved."""

    job: Job
    position: int | None = None
    """A single iteration of it."""
    same_index: bool = False
    """Each iteration waits for the iteration with its own index."""


class UnmetDependencies:
    """What a job still waits for."""

    __slots__ = ("on_jobs", "same_index")

    def __init__(self) -> None:
        self.on_jobs = 0
        """Jobs, and single iterations of jobs, that all of this job waits for."""
        self.same_index: bytearray | None = None
        """For each iteration, how many iterations of its own index are still missing."""


# For all jobs without iterations: nobody can wait for one of those.
_NOWHERE: dict[int, list[Job]] = {}
_NOBODY: list[Job] = []


class Dependents:
    """Who waits for a job."""

    __slots__ = ("on_job", "on_position", "same_index")

    def __init__(self, *, iterated: bool) -> None:
        self.on_job: list[Job] = []
        self.on_position = {} if iterated else _NOWHERE
        self.same_index = [] if iterated else _NOBODY


class Suggestions:
    """Names of jobs to suggest where unknown ones are written."""

    def __init__(self, names: Mapping[str, Job]) -> None:
        self._names = names
        self._left = MOST_SUGGESTIONS if len(names) <= MOST_COMPARED else 0

    def hint(self, wanted: str) -> str:
        """`; did you mean 'prepare'?` for the name nearest to this one; empty when there is none."""
        if not self._left:
            return ""
        self._left -= 1
        nearest = get_close_matches(wanted, self._names, n=1, cutoff=NEAR)
        return f"; did you mean {nearest[0]!r}?" if nearest else ""


def resolve(
    name: str, after: str, indices: range | None, find: Mapping[str, Job], suggestions: Suggestions | None = None
) -> Prerequisite | str:
    """What one entry of `after` of the job `name` means, or a sentence that says why it means nothing."""
    wanted, separator, suffix = after.partition(":")
    job = find.get(wanted)
    if job is None:
        hint = suggestions.hint(wanted) if suggestions is not None else ""
        return f"job {name!r} waits for {after!r}, and there is no job {wanted!r}{hint}"
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


def find_cycles(prerequisites: Mapping[Job, Iterable[Prerequisite]], most: int) -> list[list[Job]]:
    """Cycles of jobs that wait for each other, each in order, and at most so many. Every job that waits for itself is
    one; of cycles that have all their jobs in common with others, some are left out. Jobs that were registered before
    cannot be part of one."""
    cycles: list[list[Job]] = []
    in_cycles: set[Job] = set()
    done: set[Job] = set()
    for root in prerequisites:
        if root in done:
            continue
        path: dict[Job, int] = {root: 0}
        stack = [iter(prerequisites[root])]
        while stack:
            for prerequisite in stack[-1]:
                job = prerequisite.job
                if job in path:
                    cycle = list(islice(path, path[job], None))
                    if len(cycle) == 1 or not in_cycles.issuperset(cycle):
                        cycles.append(cycle)
                        in_cycles.update(cycle)
                    if len(cycles) == most:
                        return cycles
                elif job in prerequisites and job not in done:
                    path[job] = len(path)
                    stack.append(iter(prerequisites[job]))
                    break
            else:
                stack.pop()
                done.add(path.popitem()[0])
    return cycles


def dependents_of(job: Job) -> Dependents:
    if job.dependents is None:
        job.dependents = Dependents(iterated=job.iterations is not None)
    return job.dependents
