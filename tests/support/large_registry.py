"""Registries with many attempts, written at once as a manager would have left them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal import commit_group
from qcg.pilotjob.journal.commit_group import Row
from qcg.pilotjob.journal.encoding import encode_grant
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import RESOURCES, NodeSize
from qcg.pilotjob.journal.schema import place
from tests.journal.samples import spec

BEGAN = 1_700_000_000.0
USAGE = Usage(user=900_000, system=100_000, memory=20_480, minor_faults=5, major_faults=0, read=4096, written=8192)


class Shape(NamedTuple):
    """The size of a registry. Half of the attempts are iterations of one job, the others are separate jobs."""

    attempts: int
    nodes: int = 10
    cores: int = 48
    failed: float = 0.02
    retried: float = 0.01


def write_registry(path: Path, shape: Shape) -> None:
    """Write a closed registry in which every core is busy from begin to end, except for short gaps."""
    journal = Journal.create(path)
    journal.set_metadata(RESOURCES, [NodeSize(name=f"n{node}", cores=shape.cores) for node in range(shape.nodes)])
    journal.close()
    iterations = shape.attempts // 2
    numbers = range(2, shape.attempts - iterations + 2)
    with sqlite3.connect(path) as connection:
        connection.execute(
            commit_group.INSERT_JOB, (1, "sweep", BEGAN, iterations, spec(1, "sweep", range(iterations)))
        )
        connection.executemany(commit_group.INSERT_JOB, ((seq, f"job{seq}", BEGAN, 0, spec(seq)) for seq in numbers))
        places = [*(place(1, index) for index in range(iterations)), *(place(seq, -1) for seq in numbers)]
        past: list[Row] = []
        connection.executemany(commit_group.PUT_ATTEMPT, _attempts(places, shape, past))
        connection.executemany(commit_group.PUT_PAST_ATTEMPT, past)
        connection.execute(commit_group.START_JOB, (int(State.EXECUTING), BEGAN + 1, 1))
        (last,) = connection.execute("SELECT max(ended) FROM runs").fetchone()
        connection.execute(commit_group.END_JOB, (int(State.FAILED), last + 1, "", 1))
    connection.close()


def _attempts(places: list[int], shape: Shape, past: list[Row]) -> Iterator[Row]:
    chance = random.Random(1)
    grants = [
        bytearray(encode_grant(Grant((NodePart(f"n{node}", (core,)),))))
        for node in range(shape.nodes)
        for core in range(shape.cores)
    ]
    free = [BEGAN + 1.0] * len(grants)
    for number, key in enumerate(places):
        lane = number % len(grants)
        attempt = 1
        if chance.random() < shape.retried:
            started, ended = _times(free, lane, chance)
            past.append(
                (key, 1, "exit", 1, 0.0, started - 0.01, started, ended, 7, 3, grants[lane], "exit code 3", *USAGE)
            )
            attempt = 2
        started, ended = _times(free, lane, chance)
        failed = chance.random() < shape.failed
        state = State.FAILED if failed else State.SUCCEED
        message = "exit code 1" if failed else ""
        yield (
            *(key, attempt, int(state), started - 0.01, started, ended, 7, int(failed), grants[lane], 0, message),
            *USAGE,
        )


def _times(free: list[float], lane: int, chance: random.Random) -> tuple[float, float]:
    started = free[lane] + chance.random() * 0.05
    ended = started + 0.5 + chance.random() * 2
    free[lane] = ended
    return started, ended
