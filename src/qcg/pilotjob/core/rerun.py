"""Running jobs again that have ended without success.

A job or iteration runs again if every prerequisite of it can still be met. Its OMITTED dependents then run again, too,
at any depth. A job or iteration that has succeeded never runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import compress

import msgspec
from msgspec import Struct

from qcg.pilotjob.core.bitmaps import in_states
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.demands import set_demand
from qcg.pilotjob.core.dependencies import Prerequisite, Suggestions, find_cycles, is_later, prerequisites_first
from qcg.pilotjob.core.effects import Held, Reply, Reran
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Rerun, RerunCandidate
from qcg.pilotjob.core.extra_resources import refusals
from qcg.pilotjob.core.finalize import MAX_SINGLE_TRANSITIONS, forget_next_attempt, make_position_ready
from qcg.pilotjob.core.host_checks import why_no_host
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import CANCELED, FAILED, OMITTED, QUEUED
from qcg.pilotjob.core.named_jobs import find
from qcg.pilotjob.core.outcome_waits import queue_ready_positions, waiting_for_outcomes
from qcg.pilotjob.core.outcomes import has_begun, is_dependency_met, why_omitted
from qcg.pilotjob.core.queue import own_entry
from qcg.pilotjob.core.records import Job, Past
from qcg.pilotjob.core.submission import (
    MAX_CYCLES,
    NewJob,
    about_cycle,
    enqueue,
    find_prerequisites,
    sized_requests,
    unshared,
    wait_for_prerequisites,
)
from qcg.pilotjob.description.errors import DescriptionError

UNSUCCESSFUL = (FAILED, CANCELED, OMITTED)


class _RerunJob(Struct):
    """A job of which some positions may run again."""

    job: Job
    candidate: RerunCandidate
    prerequisites: tuple[Prerequisite, ...]
    unknown: list[str]
    """Messages about prerequisites that do not exist any more."""
    wanted: set[int]
    """Positions that the request names."""
    positions: set[int]
    """Positions that run again."""


def rerun(core: CoreState, event: Rerun) -> None:
    """Queue jobs and iterations again; raises `SubmissionRejected` when a new description is not valid."""
    errors: dict[str, str] = {}
    selected = _Selection(core, event, errors).jobs()
    for one in selected:
        _requeue(core, one)
    jobs = {one.job for one in selected}
    waiting = _waiting_again(core, jobs)
    related: Iterable[Job] = core.jobs.values()
    if not any(one.candidate.replaced for one in selected):  # a new description does not name the old prerequisites
        waited_for = [one.prerequisites for one in selected] + [new_job.prerequisites for new_job in waiting]
        related = {other.job for prerequisites in waited_for for other in prerequisites}
    _unlink(related, jobs | {new_job.job for new_job in waiting})
    for one in selected:
        _connect(core, one)
    for new_job in waiting:
        wait_for_prerequisites(core, new_job)
        if not new_job.job.state.is_final:
            queue_ready_positions(core, new_job.job)
    for one in selected:
        if one.job.state is FAILED:  # it was queued a moment ago
            why = one.job.message.rstrip(".")
            errors[one.job.name] = f"job {one.job.name!r} can never run: {why}; give it a new description with --from"
    selected = [one for one in selected if not one.job.state.is_final]
    count = sum(len(one.positions) for one in selected)
    data: dict[str, object] = {"rerun": count, "jobs": [one.job.name for one in selected]}
    core.effects.append(Reply({**data, "errors": errors} if errors else data))


def unsuccessful(job: Job) -> list[int]:
    """The positions of a job that have ended without success; -1 for a job without iterations."""
    if job.iterations is None:
        return [-1] if job.state in UNSUCCESSFUL else []
    if not any(job.iterations.counts[state] for state in UNSUCCESSFUL):
        return []
    return list(_unsuccessful_besides(job.iterations, ()))


def changed_row(job: Job, position: int, path: str) -> str:
    """A sentence about an iteration that does not run again, but has another row in the new description of its job."""
    assert job.iterations is not None
    state = job.iterations.state(position).name
    return (
        f"row {position} of {path} has changed, and {job.name}:{position}, which is {state} with the old row, does not"
        " run again; change only rows of iterations that run again, or submit the new rows as a new job"
    )


class _Selection:
    """Selects the positions that run again."""

    def __init__(self, core: CoreState, event: Rerun, errors: dict[str, str]) -> None:
        self._core = core
        self._event = event
        self._errors = errors
        self._states = frozenset(event.states or UNSUCCESSFUL)
        self._found: dict[Job, _RerunJob] = {}
        """Jobs that may run again, in the order of submission."""
        self._named: dict[str, tuple[Job, int]] = {}

    def jobs(self) -> list[_RerunJob]:
        jobs = [self._core.jobs[name] for name in self._event.jobs]
        for job in sorted(jobs, key=lambda job: job.seq):
            self._found[job] = self._prepare(job, self._event.jobs[job.name])
        if self._event.names:
            for name in self._event.names:
                self._want(name)
        else:
            for one in self._found.values():
                one.wanted.update(
                    position
                    for position in unsuccessful(one.job)
                    if self._core.state_of(one.job, position) in self._states
                )
        replaced = [one for one in self._found.values() if one.candidate.replaced]
        waiting = {one.job: one.prerequisites for one in self._found.values()}
        if replaced and (cycles := find_cycles(waiting, MAX_CYCLES)):
            raise SubmissionRejected([about_cycle(cycle) for cycle in cycles])
        for job in prerequisites_first(waiting):
            self._select(self._found[job])
        for name, (job, position) in self._named.items():
            self._report_left(name, self._found[job], position)
        problems = [problem for one in replaced for problem in self._problems_of(one)]
        if problems:
            raise SubmissionRejected(problems)
        return [one for one in self._found.values() if one.positions]

    def _prepare(self, job: Job, candidate: RerunCandidate) -> _RerunJob:
        new_job = NewJob(job, candidate.description, ())
        suggestions = Suggestions(self._core.jobs) if candidate.replaced else None
        unknown = find_prerequisites(new_job, self._core.jobs, suggestions)
        # A later job may have got the name of a prerequisite that was removed.
        known = [other for other in new_job.prerequisites if not is_later(other.job, job)]
        if candidate.replaced:
            later = [other.job.name for other in new_job.prerequisites if is_later(other.job, job)]
            unknown += [f"job {job.name!r} cannot wait for {name!r}, which was submitted after it" for name in later]
            if unknown:
                raise SubmissionRejected(unknown)
        return _RerunJob(job, candidate, tuple(known), unknown, set(), set())

    def _want(self, name: str) -> None:
        found = find(self._core, name)
        if isinstance(found, str):
            self._errors[name] = found
            return
        job, position = found
        one = self._found.get(job)
        # A single iteration is checked alone: a request may name all iterations of a large job.
        candidates = [position] if one is not None and position >= 0 else [] if one is None else unsuccessful(job)
        chosen = [place for place in candidates if self._core.state_of(job, place) in self._states]
        if one is None or not chosen:
            wanted = (
                "" if not self._event.states else f", not {' or '.join(state.name for state in self._event.states)}"
            )
            state = self._core.state_of(job, position)
            self._errors[name] = f"job {name!r} is {state.name}{wanted}; only jobs that ended without success run again"
            return
        one.wanted.update(chosen)
        self._named[name] = job, position

    def _select(self, one: _RerunJob) -> None:
        """Select the requested positions of a job, and those omitted because of jobs that now run again."""
        candidates = self._candidates(one)
        one.positions.update([position for position in candidates if self._runs_again(one, position)])

    def _candidates(self, one: _RerunJob) -> list[int]:
        """The requested positions, and dependents of positions that run again."""
        iterations = one.job.iterations
        found = set(one.wanted)
        for prerequisite in one.prerequisites:
            other = self._found.get(prerequisite.job)
            if other is None or not other.positions:
                continue
            if not prerequisite.same_index:
                return unsuccessful(one.job)
            assert iterations is not None
            assert other.job.iterations is not None
            indices = other.job.iterations.indices
            waiting = [iterations.position(indices[position]) for position in other.positions]
            found.update([position for position in waiting if position is not None])
        return [position for position in sorted(found) if self._core.state_of(one.job, position) in UNSUCCESSFUL]

    def _runs_again(self, one: _RerunJob, position: int) -> bool:
        state = self._core.state_of(one.job, position)
        is_wanted = position in one.wanted
        if not is_wanted and state is not OMITTED:
            return False
        if one.unknown and state is not FAILED:
            return False
        is_touched = False
        for prerequisite in one.prerequisites:
            other = self._found.get(prerequisite.job)
            if self._blocker(one, position, prerequisite) is not None:
                return False
            place = self._place(one, position, prerequisite)
            is_touched = is_touched or (
                other is not None and bool(other.positions if place is None else place in other.positions)
            )
        return is_wanted or is_touched

    def _place(self, one: _RerunJob, position: int, prerequisite: Prerequisite) -> int | None:
        """The position of the prerequisite of one position; None for a whole job."""
        if not prerequisite.same_index:
            return prerequisite.position
        assert one.job.iterations is not None
        assert prerequisite.job.iterations is not None
        return prerequisite.job.iterations.position(one.job.iterations.indices[position])

    def _blocker(self, one: _RerunJob, position: int, prerequisite: Prerequisite) -> str | None:
        """Why a dependency can never be met; None if it can."""
        other, kind = prerequisite.job, prerequisite.kind
        place = self._place(one, position, prerequisite)
        chosen = self._found.get(other)
        again = chosen.positions if chosen is not None else set()
        if kind == "after" and other.iterations is not None and place is None:
            bad = sum(other.iterations.counts[state] for state in UNSUCCESSFUL)
            left = bad - len(again)
            return f"it waits for {other.name!r}, of which {left} iterations have not succeeded" if left else None
        place = -1 if place is None else place
        state = self._core.state_of(other, place)
        runs_again = place in again or (place < 0 and bool(again))
        if runs_again or is_dependency_met(kind, state, begun=has_begun(self._core, other, place)) is not False:
            return None
        return why_omitted(kind, name_of(other, place), state)

    def _report_left(self, name: str, one: _RerunJob, position: int) -> None:
        """Report why a job or iteration that the request names does not run again."""
        wanted = one.wanted if position < 0 else {position}
        left = sorted(wanted - one.positions)
        if not left:
            return
        blockers = [self._blocker(one, left[0], prerequisite) for prerequisite in one.prerequisites]
        reasons = [f"{blocker}; run that again, too" for blocker in blockers if blocker] or one.unknown
        self._errors[name] = f"job {name!r} cannot run again: {reasons[0]}"

    def _problems_of(self, one: _RerunJob) -> list[str]:
        """Problems of a new description. It keeps the iterations, and its host exists."""
        job, description = one.job, one.candidate.description
        before = None if job.iterations is None else job.iterations.indices
        after = None if description.iteration is None else description.iteration.indices()
        if not one.positions and job.name not in self._event.names:
            return []
        if before != after:
            return [f"job {job.name!r} has other iterations in its new description; keep them as they were"]
        if not job.state.is_final:
            return [f"job {job.name!r} is {job.state.name}; its description can be replaced once it has ended"]
        if not one.positions:
            return [f"job {job.name!r} does not run again, so its description is not replaced"]
        if (
            (kept := one.candidate.changed_rows - one.positions)
            and description.iteration
            and description.iteration.rows
        ):
            return [changed_row(job, min(kept), description.iteration.rows.path)]
        if description.request.host and (refusal := why_no_host(self._core.pool, description)):
            return [f"job {job.name!r}: {refusal}"]
        if refused := refusals(self._core.pool, description.request):
            return [f"job {job.name!r}: {refused[0]}"]
        try:
            sized_requests(self._core, description)
        except DescriptionError as error:
            return [f"job {job.name!r}: {error}"]
        return [f"job {job.name!r}: {refusal}" for refusal in refusals(self._core.pool, description.request)]


def _requeue(core: CoreState, one: _RerunJob) -> None:
    """Put the selected positions of a job into the state QUEUED."""
    job, candidate, iterations = one.job, one.candidate, one.job.iterations
    was_final = job.state.is_final
    positions = tuple(sorted(one.positions))
    left = () if iterations is None else _unsuccessful_besides(iterations, one.positions)
    if job.spec is None or candidate.replaced:
        job.spec = msgspec.msgpack.encode(candidate.description)
    for position in positions:
        _forget_retries(core, job, position, candidate)
    core.effects.append(Reran(job, positions, left, was_final, candidate.replaced, core.now))
    job.message = ""
    if was_final:
        since = candidate.held_since or (core.now if candidate.replaced and candidate.description.hold else 0.0)
        if since:
            core.holds.hold(job, -1, since)
            core.effects.append(Held(job, -1, since))
        core.transition(job, -1, QUEUED)
        if iterations is not None:
            iterations.began = 0.0
    if iterations is not None:
        alone = len(positions) <= MAX_SINGLE_TRANSITIONS
        for position in positions:
            if alone:
                core.transition(job, position, QUEUED)
            else:
                core.iteration_counts[iterations.states[position]] -= 1
                core.iteration_counts[QUEUED] += 1
                iterations.set_state(position, QUEUED)


def _unsuccessful_besides(iterations: Iterations, positions: Collection[int]) -> tuple[int, ...]:
    """The positions without success besides these."""
    left = bytearray(in_states(iterations.states, *UNSUCCESSFUL))
    for position in positions:
        left[position] = 0
    return tuple(compress(range(len(left)), left))


def _forget_retries(core: CoreState, job: Job, position: int, candidate: RerunCandidate) -> None:
    """Begin with new budgets. The numbers of earlier attempts stay used."""
    number, attempts = candidate.attempts.get(position, (0, 0))
    if job.iterations is None:
        job.last_number = max(number, job.last_number)
    elif number:
        job.iterations.last_numbers[position] = max(number, job.last_number_of(position))
    if job.iterations is not None and job.iterations.apart and position in job.iterations.apart:
        job.iterations.apart.pop(position).withdraw(position)
        if core.holds and core.holds.since(job, position):
            set_demand(core, job, position, own_entry(job, position).demand)
    forget_next_attempt(core, job, position)
    core.health.unstartable.discard(job.seq)
    core.losses.pop((job.seq, position), None)
    past = core.past.get(job.seq)
    if past is not None:
        past.pop(position, None)
    if attempts:
        earlier = core.past.setdefault(job.seq, {})[position] = Past()
        earlier.attempts = attempts


def _connect(core: CoreState, one: _RerunJob) -> None:
    """Let the selected positions wait for their prerequisites, and queue the positions that are ready."""
    job = one.job
    description = one.candidate.description
    try:
        requests, plan = sized_requests(core, description)
    except DescriptionError:  # its share fitted into the nodes that existed when it was submitted
        requests, plan = sized_requests(core, unshared(description))
    new_job = NewJob(job, description, requests, one.prerequisites)
    if not job.entries:
        if job.iterations is not None:
            job.iterations.plan = plan
        enqueue(core, new_job)
        return
    wait_for_prerequisites(core, new_job)
    if description.outcomes:
        if not job.state.is_final:
            queue_ready_positions(core, job)
        return
    unmet = job.unmet
    for position in one.positions:
        met = unmet is None or not (unmet.on_jobs or (unmet.same_index is not None and unmet.same_index[position]))
        if met and core.state_of(job, position) is QUEUED:
            make_position_ready(core, job, position)


def _waiting_again(core: CoreState, jobs: set[Job]) -> list[NewJob]:
    """Other jobs that wait for outcomes of these jobs: their unstarted positions wait for the next outcome."""
    found = []
    for job, description in waiting_for_outcomes(core, jobs) if jobs else ():
        new_job = NewJob(job, description, ())
        find_prerequisites(new_job, core.jobs)
        new_job.prerequisites = tuple([one for one in new_job.prerequisites if not is_later(one.job, job)])
        if any(one.job in jobs for one in new_job.prerequisites):
            found.append(new_job)
    return found


def _unlink(prerequisites: Iterable[Job], jobs: set[Job]) -> None:
    """Remove jobs from the dependents of others: when a job ended, some of its prerequisites may not have ended."""
    for other in prerequisites if jobs else ():
        if (dependents := other.dependents) is not None:
            for waiting in (dependents.on_job, dependents.same_index, *dependents.on_position.values()):
                waiting[:] = [job for job in waiting if job not in jobs]
            for watching in (dependents.outcomes or {}).values():
                watching[:] = [one for one in watching if one.job not in jobs]
