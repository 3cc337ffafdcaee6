"""The reply to `endedJobs`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qcg.pilotjob.core.effects import Added
from qcg.pilotjob.description.requests import EndedJobs
from qcg.pilotjob.interfaces.handlers.ended_jobs import ended_jobs
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.manager.manager import Manager
from tests.journal.samples import ended, job, run


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """With 1500 jobs, of which all but the last have ended."""
    journal = Journal.create(tmp_path / "registry.sqlite")
    jobs = [job(seq) for seq in range(1, 1501)]
    journal.record(Added(jobs))
    for one in jobs[:-1]:
        journal.record(ended(run(one)))
    journal.commit()
    yield journal
    journal.close()


def reply(journal: Journal, after: int | None, *, unfinished: int = 0, full: bool = False) -> dict[str, Any]:
    """`full`: nothing can be written at the moment."""
    commits = SimpleNamespace(try_to_commit=(lambda: None) if full else journal.commit)
    engine = SimpleNamespace(journal=journal, commits=commits)
    pilot = SimpleNamespace(engine=engine, state=SimpleNamespace(unfinished=unfinished))
    data = asyncio.run(ended_jobs(cast(Manager, pilot), EndedJobs(after))).data
    assert data is not None
    return {**data, "ends": [end["number"] for end in data["ends"]]}


@pytest.mark.parametrize(
    ("after", "unfinished", "ends", "more"),
    [
        (None, 0, range(0), False),
        (None, 1, range(0), True),
        (0, 0, range(1, 1001), True),
        (1000, 0, range(1001, 1500), False),
        (1000, 1, range(1001, 1500), True),
        (1499, 1, range(0), True),
        (1499, 0, range(0), False),
        (2**80, 0, range(0), False),
    ],
)
def test_ends_after_a_number_are_listed(journal: Journal, after: int | None, unfinished: int, ends: range, more: bool):
    expected = {"ends": list(ends), "last": 1499, "first": 0, "delayed": False, "more": more}
    assert reply(journal, after, unfinished=unfinished) == expected


def test_an_end_is_committed_before_it_is_listed(journal: Journal):
    journal.record(ended(run(job(1500))))
    assert reply(journal, 1499)["ends"] == [1500]
    assert journal.last_end == 1500


def test_an_end_that_cannot_be_committed_is_announced_and_not_listed(journal: Journal):
    journal.record(ended(run(job(1500))))
    expected = {"ends": [], "last": 1499, "first": 0, "delayed": True, "more": True}
    assert reply(journal, 1499, full=True) == expected
    assert reply(journal, 1499)["ends"] == [1500]
