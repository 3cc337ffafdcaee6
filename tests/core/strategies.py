"""Random nodes and random submissions, small enough to collide."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import (
    Amount,
    Execution,
    Iteration,
    JobDescription,
    ResourceRequest,
    Sharing,
    SharingName,
)
from tests.core.core_driver import request

DECAY = 100
WALL_TIMES = [None, None, None, 3.0, 20.0, 1000.0]


@st.composite
def node_lists(draw: st.DrawFn) -> list[NodeSpec]:
    """One to five nodes; core ids need not start at 0."""
    specs = []
    for number in range(draw(st.integers(1, 5))):
        first = draw(st.sampled_from([0, 0, 4]))
        cores = tuple(range(first, first + draw(st.integers(1, 6))))
        gpus = tuple(str(gpu) for gpu in range(draw(st.integers(0, 2))))
        specs.append(NodeSpec(f"n{number}", cores, gpus, draw(st.sampled_from([0, DECAY, 2 * DECAY]))))
    return specs


def ranges(most: int) -> st.SearchStrategy[int | tuple[int, int | None]]:
    """An exact number, or a range with or without an end."""
    number = st.integers(1, most)
    span = st.tuples(number, st.integers(0, most)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    return st.one_of(number, number, span, number.map(lambda least: (least, None)))


def plain_requests() -> st.SearchStrategy[ResourceRequest]:
    gpus = st.sampled_from([0, 0, 0, 1, 2])
    memory = st.sampled_from([0, 0, 0, DECAY // 2, DECAY])
    return st.one_of(
        st.builds(request, cores=ranges(5)),
        st.builds(request, cores=ranges(4), gpus=gpus, memory=memory, one=st.just(True)),
        st.builds(request, nodes=ranges(2), gpus=gpus, memory=memory),
        st.builds(request, cores=ranges(3), nodes=ranges(2), gpus=gpus, memory=memory),
        st.just(request(1)),
        st.just(request(1)),
    )


class Draft(NamedTuple):
    """A job without a name, whose prerequisites are still numbers."""

    request: ResourceRequest
    sharing: Sharing | None
    indices: range | None
    wall_time: float | None
    after: list[tuple[str, int]]
    """Prerequisites: a kind (`whole`, `one` or `same`) and a number that selects a job."""


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    indices = draw(
        st.one_of(
            st.none(),
            st.builds(lambda start, count, step: range(start, start + count * step, step), *[st.integers(1, 4)] * 3),
        )
    )
    sharing = None
    if indices is not None and draw(st.integers(0, 3)) == 0:
        of_cores = draw(st.booleans())
        least = Amount(draw(st.integers(1, 2)), None)
        names: list[SharingName] = ["maximum-iters", "split-into"]
        name = draw(st.sampled_from(names))
        parts = draw(st.sampled_from([None, 1, 2])) if name == "split-into" else None
        sharing = Sharing(name, "cores" if of_cores else "nodes", parts)
        wanted = ResourceRequest(least, None) if of_cores else ResourceRequest(None, least)
    else:
        wanted = draw(plain_requests())
    how = st.sampled_from(["whole", "one", "same", "same"])
    wall_time = draw(st.sampled_from(WALL_TIMES))
    return Draft(wanted, sharing, indices, wall_time, draw(st.lists(st.tuples(how, st.integers(0, 20)), max_size=2)))


def describe(name: str, draft: Draft, others: dict[str, range | None]) -> JobDescription:
    """The draft as a description; `others` are the jobs that it may wait for."""
    after = []
    for how, which in draft.after if others else []:
        other = list(others)[which % len(others)]
        indices = others[other]
        if indices is not None and how == "one":
            after.append(f"{other}:{indices[which % len(indices)]}")
        elif indices is not None and how == "same" and draft.indices and set(draft.indices) <= set(indices):
            after.append(f"{other}:${{it}}")
        else:
            after.append(other)
    iteration = (
        None if draft.indices is None else Iteration(draft.indices.start, draft.indices.stop, draft.indices.step)
    )
    return JobDescription(
        name,
        Execution(exec="true"),
        draft.request,
        draft.sharing,
        draft.wall_time,
        iteration=iteration,
        after=tuple(after),
    )
