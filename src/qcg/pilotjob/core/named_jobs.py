"""Finds jobs and iterations by the names that requests give, and replies with an error for each name that fails."""

from __future__ import annotations

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Reply
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.iteration import IndexList, Indices

MOST_LISTED = 5
"""Indices of iterations that a message lists; of more it names the first and the last."""


def find(core: CoreState, name: str) -> tuple[Job, int] | str:
    """The job and position that a name such as `job` or `job:3` stands for, or an error message."""
    wanted, separator, suffix = name.partition(":")
    job = core.jobs.get(wanted)
    if job is None:
        return f"there is no job {wanted!r}"
    if not separator:
        return job, -1
    if job.iterations is None:
        return f"job {wanted!r} has no iterations"
    position = job.iterations.position_of(suffix)
    if position is None:
        return f"job {wanted!r} has no iteration {suffix!r}; {indices_in_words(job.iterations.indices)}"
    return job, position


def indices_in_words(indices: Indices) -> str:
    """Which iterations a job has, for a message about one that it does not have."""
    if len(indices) <= MOST_LISTED:
        return f"there {'is' if len(indices) == 1 else 'are'} {', '.join(map(str, indices))}"
    if isinstance(indices, IndexList):
        return f"there are {len(indices)}, between {indices.start} and {indices.stop - 1}"
    step = "" if indices.step == 1 else f" in steps of {indices.step}"
    return f"there are {indices[0]} to {indices[-1]}{step}"


def reply(core: CoreState, verb: str, count: int, errors: dict[str, str]) -> None:
    """Emit the reply. `count`: the number of jobs that were changed. `errors`: by name, why the others were not."""
    core.effects.append(Reply({verb: count, "errors": errors} if errors else {verb: count}))
