"""Attempts on two nodes with two cores each, for tests of computed timelines."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import NodePart
from qcg.pilotjob.journal.metadata import NodeSize
from qcg.pilotjob.journal.schema import place
from qcg.pilotjob.report.attempt_columns import AttemptColumns, JobNames

BEGAN = 1_700_000_000.0
GRANTS = [
    (NodePart("n1", (0,)),),
    (NodePart("n1", (1,)),),
    (NodePart("n1", (0, 1)),),
    (NodePart("n2", (0,)),),
    (NodePart("n1", (1,)), NodePart("n2", (0, 1))),
]
LANES = [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]
FINAL = [State.SUCCEED, State.FAILED, State.CANCELED]


class One(NamedTuple):
    """An attempt for the naive computation."""

    start: float
    end: float
    state: State
    grant: int


@st.composite
def attempts(draw: Callable) -> list[One]:
    """Attempts that may overlap, have no duration, or still run, with times on a grid, so that many times are equal."""
    moment = st.integers(0, 40).map(lambda quarter: BEGAN + quarter / 4) | st.floats(BEGAN, BEGAN + 10)
    found = []
    for _ in range(draw(st.integers(0, 25))):
        start, end = sorted((draw(moment), draw(moment)))
        running = draw(st.booleans()) and draw(st.booleans())
        state = State.EXECUTING if running else draw(st.sampled_from(FINAL))
        found.append(One(start, 0.0 if running else end, state, draw(st.integers(0, len(GRANTS) - 1))))
    return found


def columns(found: list[One], nodes: tuple[tuple[str, int], ...] = (("n1", 2), ("n2", 2))) -> AttemptColumns:
    names = [f"job{number}".encode() for number in range(len(found))]
    offsets = array("Q", [0])
    for name in names:
        offsets.append(offsets[-1] + len(name))
    return AttemptColumns(
        places=array("q", [place(number, -1) for number in range(len(found))]),
        numbers=array("I", [1] * len(found)),
        states=array("B", [int(one.state) for one in found]),
        scheduled=array("d", [one.start for one in found]),
        starts=array("d", [one.start for one in found]),
        ends=array("d", [one.end for one in found]),
        grants=array("I", [one.grant for one in found]),
        parts=list(GRANTS),
        names=JobNames(array("q", range(len(found))), b"".join(names), offsets, {}),
        nodes=[NodeSize(name=name, cores=cores) for name, cores in nodes],
        submitted=BEGAN,
    )
