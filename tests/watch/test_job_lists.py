"""Lists of jobs, compared with a plain search through all rows."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.journal import commit_group
from qcg.pilotjob.journal.encoding import encode_grant
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.watch import job_finder
from qcg.pilotjob.watch.job_finder import VALUES, JobFinder
from qcg.pilotjob.watch.job_lists import job_line, list_jobs
from qcg.pilotjob.watch.source import JobLine, JobQuery, Sort
from tests.journal.samples import spec

NOW = 2000.0
GRANT = encode_grant(Grant((NodePart("n1", (0,)),)))
JOBS = 60


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs in every state, with and without attempts and iterations, in any order."""
    path = tmp_path_factory.mktemp("registry") / "registry.sqlite"
    Journal.create(path).close()
    choose = random.Random(1)
    with sqlite3.connect(path) as connection:
        for seq in range(1, JOBS + 1):
            name = f"{choose.choice('abAB')}_{choose.randint(0, 9)}%{seq}"
            iterated = seq % 10 == 0
            described = spec(seq, name, range(4)) if iterated else spec(seq, name)
            connection.execute(commit_group.INSERT_JOB, (seq, name, 1000.0, 4 if iterated else 0, described))
            state = choose.choice(list(State))
            if iterated:
                _write_iterated(connection, seq, state, choose)
            else:
                _write_single(connection, seq, state, choose)
    connection.close()
    return path


def _write_single(connection: sqlite3.Connection, seq: int, state: State, choose: random.Random) -> None:
    if state is State.OMITTED or (state.is_final and choose.random() < 0.2):
        connection.execute(commit_group.END_JOB, (int(state), 1500.0 + seq, "never started", seq))
    elif state is not State.QUEUED or choose.random() < 0.5:
        connection.execute(commit_group.PUT_ATTEMPT, _attempt(place(seq, -1), state, choose))


def _write_iterated(connection: sqlite3.Connection, seq: int, state: State, choose: random.Random) -> None:
    if state is not State.QUEUED:
        connection.execute(commit_group.START_JOB, (int(State.EXECUTING), 1100.0 + seq, seq))
        connection.execute(commit_group.PUT_ATTEMPT, _attempt(place(seq, 1), State.EXECUTING, choose))
    if state.is_final:
        connection.execute(commit_group.END_JOB, (int(state), 1600.0 + seq, "", seq))


def _attempt(key: int, state: State, choose: random.Random) -> tuple[object, ...]:
    started = choose.uniform(1000, 1200) if state >= State.EXECUTING else 0.0
    ended = started + choose.uniform(1, 400) if state.is_final else 0.0
    memory = choose.randint(1, 1000) if state.is_final else 0
    used = (1, 1, memory, 0, 0, 0, 0)
    return key, 1, int(state), 1000.0, started, ended, 7, 0, GRANT, 0, "", *used


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with snapshot(path) as connection:
        yield connection


def expected(connection: sqlite3.Connection, query: JobQuery) -> list[str]:
    """The names of all jobs that a query matches, found by a plain search."""
    lines = [line for seq in range(1, JOBS + 1) if (line := job_line(connection, seq)) is not None]
    numbers = {line.name: number for number, line in enumerate(lines)}
    if query.states:
        lines = [line for line in lines if line.state in query.states]
    if query.search:
        lines = [line for line in lines if query.search.lower() in line.name.lower()]
    if query.sort == "submitted":
        lines.sort(key=lambda line: numbers[line.name], reverse=query.descending)
    elif query.sort == "name":
        lines.sort(key=lambda line: line.name.encode(), reverse=query.descending)
    elif query.sort == "state":
        sign = -1 if query.descending else 1
        lines.sort(key=lambda line: (sign * State[line.state], numbers[line.name]))
    else:
        sign = -1 if query.descending else 1
        lines.sort(key=lambda line: (value(line, query.sort) <= 0, sign * value(line, query.sort), numbers[line.name]))
    return [line.name for line in lines]


def value(line: JobLine, sort: Sort) -> float:
    """The sort value of a job. A job that has ended without an attempt has none."""
    if not (line.grant or line.iterations):
        return 0.0
    if sort == "memory":
        return line.max_memory
    if sort == "duration":
        if line.ended and line.started:
            return line.ended - line.started
        return NOW - line.started if line.started and not line.ended else 0.0
    return (line.started if sort == "started" else line.ended) or 0.0


QUERIES = [
    JobQuery(search, states, "", sort, descending)
    for search, states, sort, descending in product(
        ("", "a_", "%1"),
        ((), ("QUEUED",), ("FAILED", "OMITTED"), ("QUEUED", "EXECUTING", "SUCCEED")),
        get_args(Sort),
        (False, True),
    )
]


@pytest.mark.parametrize("deep", [5, 5000])
def test_lists_are_those_of_a_plain_search(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, deep: int):
    monkeypatch.setattr(job_finder, "DEEP", deep)
    finder = JobFinder()
    for query in QUERIES:
        names = expected(connection, query)
        whole = list_jobs(connection, 1, finder, replace(query, limit=1000), NOW)
        assert whole.total == len(names), query
        order = [line.name for line in whole.lines]
        # Jobs without a value come last, in any order that stays the same.
        sure = len([line for line in whole.lines if query.sort not in VALUES or value(line, query.sort) > 0])
        assert order[:sure] == names[:sure], query
        assert sorted(order) == sorted(names), query
        for first in (0, 7, len(names) // 2 + 1, max(len(names) - 3, 0), len(names) + 5):
            page = list_jobs(connection, 1, finder, replace(query, first=first, limit=4), NOW)
            assert [line.name for line in page.lines] == order[first : first + 4], (query, first)
            assert page.total == len(names)


def test_totals_are_counted_again_when_the_registry_has_changed(connection: sqlite3.Connection):
    finder = JobFinder()
    assert list_jobs(connection, 1, finder, JobQuery(), NOW).total == JOBS
    finder._totals["", ()] = 5
    assert list_jobs(connection, 1, finder, JobQuery(), NOW).total == 5
    assert list_jobs(connection, 2, finder, JobQuery(), NOW).total == JOBS


def test_patterns_have_stars_and_question_marks(connection: sqlite3.Connection):
    names = [line.name for line in list_jobs(connection, 1, JobFinder(), JobQuery(limit=1000), NOW).lines]
    found = list_jobs(connection, 1, JobFinder(), JobQuery(search="?_1*", limit=1000), NOW)
    assert [line.name for line in found.lines] == [name for name in names if name[1:3] == "_1"]


def test_iterations_are_listed_with_those_that_have_not_started(connection: sqlite3.Connection):
    lines = list_jobs(connection, 1, JobFinder(), JobQuery(limit=1000), NOW).lines
    running = next(line for line in lines if line.iterations and line.state == "EXECUTING")
    for descending in (False, True):
        page = list_jobs(connection, 1, JobFinder(), JobQuery(job=running.name, descending=descending), NOW)
        assert [line.name.rpartition(":")[2] for line in page.lines] == list("3210" if descending else "0123")
    for sort in get_args(Sort):
        queued = list_jobs(connection, 1, JobFinder(), JobQuery(job=running.name, states=("QUEUED",), sort=sort), NOW)
        assert queued.total == 3
        assert [line.state for line in queued.lines] == ["QUEUED"] * 3
    found = list_jobs(connection, 1, JobFinder(), JobQuery(job=running.name, search=":1"), NOW)
    assert [line.state for line in found.lines] == ["EXECUTING"]
    assert list_jobs(connection, 1, JobFinder(), JobQuery(job="none"), NOW).total == 0
