"""Reads a part of the list of jobs, also in orders that the source does not provide."""

from __future__ import annotations

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.top.model import JobsRequest, Rows
from qcg.pilotjob.watch.source import JobLine, JobQuery, RunSource

_ATTENTION = (
    JobQuery(states=(State.EXECUTING.name,), sort="started", descending=True),
    JobQuery(states=(State.FAILED.name,), sort="ended", descending=True),
    JobQuery(
        states=tuple(state.name for state in State if state not in (State.EXECUTING, State.FAILED)), sort="submitted"
    ),
)
"""The parts of the list in the order `attention`."""


def fetch_rows(source: RunSource, request: JobsRequest) -> Rows:
    """The requested part of the list."""
    total = 0
    lines: list[JobLine] = []
    for part in _parts(request):
        first = max(0, request.first - total)
        page = source.jobs(
            JobQuery(
                search=request.search,
                states=part.states,
                job=request.job,
                sort=part.sort,
                descending=part.descending,
                first=first,
                limit=request.limit - len(lines),
            )
        )
        total += page.total
        lines += page.lines
    return Rows(request, total, tuple(lines))


def _parts(request: JobsRequest) -> list[JobQuery]:
    """The queries whose concatenated results are the list."""
    if request.order != "attention":
        return [JobQuery(states=request.states, sort=request.order, descending=request.descending)]
    parts = []
    for part in reversed(_ATTENTION) if request.descending else _ATTENTION:
        states = tuple(state for state in part.states if not request.states or state in request.states)
        if states:
            parts.append(JobQuery(states=states, sort=part.sort, descending=part.descending is not request.descending))
    return parts
