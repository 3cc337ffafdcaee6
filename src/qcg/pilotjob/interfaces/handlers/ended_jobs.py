from __future__ import annotations

from qcg.pilotjob.description.requests import EndedJobs
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager

LIMIT = 1000
"""The most ends in one reply; a client sends another request for the next ones."""


async def ended_jobs(manager: Manager, request: EndedJobs) -> Answer:
    """List the ends of jobs after a given one. Only committed ends are listed: their numbers survive a crash."""
    engine, journal = manager.engine, manager.engine.journal
    if journal.has_uncommitted_ends:
        engine.commits.try_to_commit()
    after = journal.last_end if request.after is None else min(request.after, journal.last_end)
    ends = journal.ends_after(after, LIMIT)
    listed = ends[-1].number if ends else after
    delayed = journal.has_uncommitted_ends
    return ok(
        {
            "ends": [{"number": end.number, "job": end.name, "state": end.state.name} for end in ends],
            "last": journal.last_end,
            "first": journal.ends_before,
            "delayed": delayed,
            "more": delayed or listed < journal.last_end or bool(manager.state.unfinished),
        }
    )
