"""Dependencies between jobs: resolving `after`, finding cycles, and counting unmet prerequisites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from msgspec import Struct

from qcg.pilotjob.common.similarity import nearest
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.iteration import Indices
from qcg.pilotjob.description.model import DependencyKind

SAME_INDEX = "${it}"
SAME_INDICES = -2
"""Key of the jobs whose iterations wait for the iteration with their own index."""
START = -3
"""Key of the jobs that wait for the start of a whole job: found at each start of an iteration, without the others."""
NEAR = 0.6
"""Minimum similarity, from 0 to 1, of an existing name that is suggested for an unknown one: as on the command line."""
MAX_COMPARED = 2000
"""Number of job names up to which a similar one is searched: comparing takes microseconds for each."""
MAX_SUGGESTIONS = 20
"""Unknown names of one submission that get a suggestion."""


class Prerequisite(Struct, frozen=True):
    """One dependency, resolved."""

    job: Job
    position: int | None = None
    """Position of a single iteration of `job`, if only that is waited for."""
    same_index: bool = False
    """Whether each iteration waits for the iteration with its own index."""
    kind: DependencyKind = "after"


class OutcomeWait(Struct, frozen=True):
    """A job that waits for another outcome than the success of a job or iteration."""

    job: Job
    kind: DependencyKind


class UnmetDependencies:
    """Counts of the prerequisites that a job still waits for."""

    __slots__ = ("on_jobs", "same_index")

    def __init__(self) -> None:
        self.on_jobs = 0
        """Number of jobs and single iterations that the whole job waits for."""
        self.same_index: bytearray | None = None
        """For each iteration, the number of iterations with its index that it waits for."""


# Shared by all jobs without iterations, to save memory: no job can wait for one of their iterations.
_NO_POSITIONS: dict[int, list[Job]] = {}
_NO_JOBS: list[Job] = []


class Dependents:
    """The jobs that wait for a job: for all of it, for single iterations, or index by index."""

    __slots__ = ("on_job", "on_position", "outcomes", "same_index")

    def __init__(self, *, iterated: bool) -> None:
        self.outcomes: dict[int, list[OutcomeWait]] | None = None
        """Jobs that wait for other outcomes than success: by position, -1 for all of the job, `SAME_INDICES` and
        `START`."""
        self.on_job: list[Job] = []
        self.on_position = {} if iterated else _NO_POSITIONS
        self.same_index = [] if iterated else _NO_JOBS


class Suggestions:
    """Suggests similar job names for unknown ones."""

    def __init__(self, names: Mapping[str, Job]) -> None:
        self._names = names
        self._left = MAX_SUGGESTIONS if len(names) <= MAX_COMPARED else 0

    def hint(self, wanted: str) -> str:
        """Return `; did you mean 'prepare'?` with the most similar name, or an empty string."""
        if not self._left:
            return ""
        self._left -= 1
        near = nearest(wanted, self._names, NEAR)
        return f"; did you mean {near!r}?" if near is not None else ""


def resolve(
    name: str,
    after: str,
    indices: Indices | None,
    find: Mapping[str, Job],
    suggestions: Suggestions | None = None,
    kind: DependencyKind = "after",
) -> Prerequisite | str:
    """Resolve one entry of the dependencies of the job `name`; an error message if that is not possible."""
    wanted, separator, suffix = after.partition(":")
    job = find.get(wanted)
    if job is None:
        hint = suggestions.hint(wanted) if suggestions is not None else ""
        return f"job {name!r} waits for {after!r}, and there is no job {wanted!r}{hint}"
    if not separator:
        return Prerequisite(job, kind=kind)
    if job.iterations is None:
        return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iterations"
    if suffix.replace(" ", "") == SAME_INDEX:
        if indices is None:
            return f"job {name!r} waits for {after!r}, and has no iterations itself"
        missing = _first_missing(indices, job.iterations.indices)
        if missing is not None:
            return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iteration {missing}"
        return Prerequisite(job, same_index=True, kind=kind)
    position = job.iterations.position_of(suffix)
    if position is None:
        return f"job {name!r} waits for {after!r}, and job {wanted!r} has no iteration {suffix}"
    return Prerequisite(job, position, kind=kind)


def _first_missing(wanted: Indices, existing: Indices) -> int | None:
    if not (isinstance(wanted, range) and isinstance(existing, range)):
        return next((index for index in wanted if index not in existing), None)
    if wanted[0] in existing and wanted[-1] in existing and (len(wanted) == 1 or wanted.step % existing.step == 0):
        return None
    return next(index for index in wanted if index not in existing)


def find_cycles(prerequisites: Mapping[Job, Iterable[Prerequisite]], most: int) -> list[list[Job]]:
    """Find up to `most` cycles of jobs that wait for each other, each in order.

    A job that waits for itself is a cycle. A cycle whose jobs all belong to cycles already found may be left out. Only
    jobs of the new submission are searched: registered jobs cannot be part of a cycle.
    """
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


def prerequisites_first(prerequisites: Mapping[Job, Iterable[Prerequisite]]) -> list[Job]:
    """Sort jobs topologically: prerequisites come before their dependents. The jobs form no cycle."""
    ordered: dict[Job, None] = {}
    for root in prerequisites:
        stack = [] if root in ordered else [(root, iter(prerequisites[root]))]
        while stack:
            job, left = stack[-1]
            following = next((one.job for one in left if one.job in prerequisites and one.job not in ordered), None)
            if following is not None:
                stack.append((following, iter(prerequisites[following])))
            else:
                stack.pop()
                ordered[job] = None
    return list(ordered)


def is_later(other: Job, job: Job) -> bool:
    """Whether `other` was submitted after `job`: jobs of one submission may depend on each other in any order."""
    return other.seq > job.seq and other.submitted > job.submitted


def dependents_of(job: Job) -> Dependents:
    """The dependents of a job, created on first use."""
    if job.dependents is None:
        job.dependents = Dependents(iterated=job.iterations is not None)
    return job.dependents
