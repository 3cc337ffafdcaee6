"""Runs jobs again: gathers from the registry the data about ended jobs that the core no longer holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.dependencies import Suggestions
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import Rerun, RerunCandidate
from qcg.pilotjob.core.job_states import OMITTED, State
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.rerun import UNSUCCESSFUL
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.descriptions import prerequisites_of
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.row_changes import with_new_rows
from qcg.pilotjob.manager.stale_dependents import stale_dependents
from qcg.pilotjob.rows.store import RowFiles

MOST_SHOWN = 5
"""Jobs that can never run which a notice names."""


def rerun_event(
    engine: Engine,
    row_files: RowFiles,
    names: Iterable[str],
    states: Iterable[State],
    replacements: Mapping[str, JobDescription] = MappingProxyType({}),
) -> Rerun:
    """The event that runs these jobs again; raises `SubmissionRejected` for a replacement without a job, and
    for one with other rows for iterations that have succeeded.

    `names`: jobs and iterations; empty for all. `states`: empty for all states without success. `replacements`: new
    descriptions by name; descriptions of other jobs are ignored, unless `names` has them.
    """
    names, states = list(names), list(states)
    jobs = engine.state.jobs
    unknown = [name for name in replacements if name not in jobs]
    if unknown:
        suggestions = Suggestions(jobs)
        raise SubmissionRejected(
            [f"there is no job {name!r} that could be run again{suggestions.hint(name)}" for name in unknown]
        )
    missing = [name for name in names if name in replacements and not _states_of(jobs[name])]
    if missing:
        raise SubmissionRejected(
            [
                f"job {name!r} is {jobs[name].state.name}; only jobs that ended without success run again"
                for name in missing
            ]
        )
    wanted = frozenset(states or UNSUCCESSFUL)
    found = [jobs[name] for name in replacements]
    if names:
        named = dict.fromkeys(name.partition(":")[0] for name in names)
        found += [jobs[name] for name in named if name in jobs and not wanted.isdisjoint(_states_of(jobs[name]))]
    elif any(engine.state.unit_counts[state] for state in wanted):
        found += [job for job in jobs.values() if not wanted.isdisjoint(_states_of(job))]
    related = _with_omitted_dependents(engine, [job for job in dict.fromkeys(found) if _states_of(job)])
    seqs = [job.seq for job in related]
    attempts = engine.journal.attempts_so_far(seqs) if related else {}
    held = engine.journal.held_since(seqs) if related else {}
    candidates = {}
    for job in related:
        replacement = replacements.get(job.name)
        description = engine.descriptions.of(job)
        changed: frozenset[int] = frozenset()
        if replacement is not None:
            description, changed = with_new_rows(job, description, replacement, row_files)
        so_far = attempts.get(job.seq, {})
        candidates[job.name] = RerunCandidate(
            description, so_far, replacement is not None, changed, held.get(job.seq, 0.0)
        )
    return Rerun(names, states, candidates)


def _with_omitted_dependents(engine: Engine, found: list[Job]) -> list[Job]:
    """These jobs, and the jobs with omitted parts that wait for one of them, at any depth.

    The core forgets what an ended job waited for: the descriptions of all omitted jobs are searched for it.
    """
    if not found or not engine.state.unit_counts[OMITTED]:
        return found
    related = dict.fromkeys(found)
    omitted = {job.seq: job for job in engine.state.jobs.values() if job not in related and _has_omitted(job)}
    specs = [(seq, job.spec) for seq, job in omitted.items() if job.spec is not None]
    ended = [seq for seq, job in omitted.items() if job.spec is None]
    waiting: dict[str, list[Job]] = {}
    for seq, spec in chain(specs, engine.journal.specs_of(ended) if ended else ()):
        job = omitted[seq]
        for name in prerequisites_of(spec, seq, job.name):
            waiting.setdefault(name, []).append(job)
    left = deque(found)
    while left:
        for job in waiting.get(left.popleft().name, ()):
            if job not in related:
                related[job] = None
                left.append(job)
    return list(related)


def _has_omitted(job: Job) -> bool:
    return job.state is OMITTED if job.iterations is None else job.iterations.counts[OMITTED] > 0


def rerun_in_states(engine: Engine, row_files: RowFiles, states: Sequence[State]) -> list[str]:
    """Run everything again that is in one of these states. Returns notices for the user."""
    event = rerun_event(engine, row_files, [], states)
    data, _ = engine.carry_out(event)
    never = list(data.get("errors", {}).values())
    if data["rerun"] or never:
        shown = [describe_rerun(data["rerun"]), *never[:MOST_SHOWN]]
        shown += [f"and {len(never) - MOST_SHOWN} more"] if len(never) > MOST_SHOWN else []
        return ["; ".join(shown), *[f"Warning: {warning}." for warning in stale_dependents(engine, data["jobs"])]]
    names = any_of(states)
    if any(not set(states).isdisjoint(_states_of(job)) for job in engine.state.jobs.values()):
        return [f"Nothing runs again: the {names} jobs wait for unsuccessful ones; --rerun all includes them"]
    return [f"Nothing runs again: no job or iteration is {names}"]


def any_of(states: Iterable[State]) -> str:
    """The states in words: `FAILED, CANCELED or OMITTED`."""
    *first, last = [state.name for state in states]
    return f"{', '.join(first)} or {last}" if first else last


def describe_rerun(count: int) -> str:
    """How many jobs and iterations are queued again, in words."""
    return f"{pluralize(count, 'job or iteration is', 'jobs and iterations are')} queued again"


def _states_of(job: Job) -> list[State]:
    """The states without success that the job or one of its iterations is in."""
    if job.iterations is None:
        return [job.state] if job.state in UNSUCCESSFUL else []
    return [state for state in UNSUCCESSFUL if job.iterations.counts[state]]
