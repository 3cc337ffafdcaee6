"""Random nodes and random submissions, small enough to collide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.changes import JobChange
from qcg.pilotjob.description.iteration import IndexList, Indices
from qcg.pilotjob.description.model import (
    Amount,
    DependencyKind,
    Execution,
    ExtraResources,
    Iteration,
    JobDescription,
    ResourceRequest,
    RetryGrowth,
    RetryPolicy,
    Sharing,
    SharingName,
)
from qcg.pilotjob.description.retry import CAUSES
from tests.core.core_driver import extra, request

DECAY = 100
COUNTERS = {"license": 3, "seat": 1}
"""Counters of every run with random jobs."""
WALL_TIMES = [None, None, None, 3.0, 20.0, 1000.0]


@st.composite
def node_lists(draw: st.DrawFn) -> list[NodeSpec]:
    """One to five nodes; core ids need not start at 0."""
    specs = []
    for number in range(draw(st.integers(1, 5))):
        first = draw(st.sampled_from([0, 0, 4]))
        cores = tuple(range(first, first + draw(st.integers(1, 6))))
        gpus = tuple(str(gpu) for gpu in range(draw(st.integers(0, 2))))
        memory = draw(st.sampled_from([0, DECAY, 2 * DECAY]))
        counters = draw(st.sampled_from([(), (("fpga", 1),), (("fpga", 2), ("scratch", 3))]))
        specs.append(NodeSpec(f"n{number}", cores, gpus, memory, counters=counters))
    return specs


HOSTS = ("h1", "h2", "h3")


@st.composite
def mixed_node_lists(draw: st.DrawFn) -> list[NodeSpec]:
    """Nodes of the run itself, and up to three remote hosts; the last one may be behind a batch system."""
    specs = draw(node_lists())
    for name in HOSTS[: draw(st.integers(0, 3))]:
        cores = tuple(range(draw(st.integers(1, 6))))
        slots = name == HOSTS[-1] and draw(st.booleans())
        gpus = () if slots else tuple(str(gpu) for gpu in range(draw(st.integers(0, 2))))
        memory = draw(st.sampled_from([0, DECAY]))
        counters = draw(st.sampled_from([(), (("fpga", 1),)]))
        specs.append(NodeSpec(name, cores, gpus, memory, group=name, slots=slots, counters=counters))
    return specs


def ranges(most: int) -> st.SearchStrategy[int | tuple[int, int | None]]:
    """An exact number, or a range with or without an end."""
    number = st.integers(1, most)
    span = st.tuples(number, st.integers(0, most)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    return st.one_of(number, number, span, number.map(lambda least: (least, None)))


def extra_resources() -> st.SearchStrategy[ExtraResources]:
    """Counters of the run, and sometimes parts of GPUs and counters of nodes."""
    return st.sampled_from(
        [
            *[
                extra(license=1),
                extra(license=1),
                extra(license=2),
                extra(license=3),
                extra(seat=1),
                extra(license=1, seat=1),
            ],
            *[extra(500), extra(500), extra(300), extra(700, license=1)],
            *[extra(fpga=1), extra(fpga=2), extra(500, fpga=1), extra(fpga=1, license=2)],
        ]
    )


@st.composite
def requests(draw: st.DrawFn) -> ResourceRequest:
    """Requests, some of them with named resources or a part of a GPU."""
    wanted = draw(plain_requests())
    if draw(st.integers(0, 2)):
        return wanted
    further = draw(extra_resources())
    gpus = 0 if further.gpu_share else wanted.gpus
    one_node = wanted.one_node or (wanted.nodes is None and further.is_on_nodes)
    return msgspec.structs.replace(wanted, gpus=gpus, one_node=one_node, extra=further)


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
    indices: Indices | None
    wall_time: float | None
    after: list[tuple[str, int, DependencyKind]]
    """Prerequisites: what is meant (`whole`, `one` or `same`), a number that selects a job, and the kind."""
    host: str = ""
    retry: RetryPolicy | None = None
    priority: int = 0
    hold: bool = False


RARELY = st.integers(1, 10).map(lambda number: number == 7)
KINDS: st.SearchStrategy[DependencyKind] = st.sampled_from(
    ["after", "after", "after", "afterany", "afternotok", "afterstart"]
)
PRIORITIES = st.sampled_from([0, 0, 0, 1, 2, -1])


def changes() -> st.SearchStrategy[JobChange]:
    """Changes of waiting jobs: often of the priority alone, which is possible at any time."""
    cores = st.none() | st.integers(1, 4).map(lambda number: Amount(number, number))
    gpus = st.sampled_from([JobChange(), JobChange(), JobChange(gpus=1), JobChange(gpus=0, gpu_share=500)])
    return st.builds(JobChange, priority=st.integers(-2, 2)) | st.builds(
        msgspec.structs.replace,
        gpus,
        cores=cores,
        nodes=st.sampled_from([None, None, None, Amount(1, 1), Amount(1, 2), Amount(2, 2)]),
        memory=st.sampled_from([None, None, DECAY // 2]),
        wall_time=st.sampled_from([None, 3.0, 20.0]),
        priority=st.none() | st.integers(-2, 2),
    )


def retry_policies() -> st.SearchStrategy[RetryPolicy]:
    causes = st.sampled_from(CAUSES)
    steps = st.none() | st.sampled_from([1.5, 2.0]) | st.just((4.0, 100.0))
    return st.builds(
        RetryPolicy,
        st.dictionaries(causes, st.integers(1, 3), min_size=1, max_size=3),
        st.sampled_from([(), ((1, 1),), ((2, 9),)]),
        st.sampled_from([0.0, 0.0, 2.0, 30.0]),
        st.sampled_from([1.0, 2.0]),
        st.just(40.0),
        st.none() | st.builds(RetryGrowth, steps, steps, st.none() | st.sampled_from([1.5, 2.0])),
    )


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    indices = draw(
        st.one_of(
            st.none(),
            st.builds(lambda start, count, step: range(start, start + count * step, step), *[st.integers(1, 4)] * 3),
            st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(lambda some: IndexList(tuple(some))),
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
        wanted = draw(requests())
    how = st.sampled_from(["whole", "one", "same", "same"])
    wall_time = draw(st.sampled_from(WALL_TIMES))
    after = draw(st.lists(st.tuples(how, st.integers(0, 20), KINDS), max_size=2))
    retry = draw(st.none() | retry_policies())
    return Draft(wanted, sharing, indices, wall_time, after, retry=retry, priority=draw(PRIORITIES), hold=draw(RARELY))


def drafts_for_hosts() -> st.SearchStrategy[Draft]:
    """Jobs for the nodes of the run, for one remote host, or for any of them."""
    hosts = st.sampled_from(["", "", "*", *HOSTS])
    return st.tuples(drafts(), hosts).map(lambda pair: pair[0]._replace(host=pair[1]))


def _iteration(indices: Indices) -> Iteration:
    listed = tuple(indices) if isinstance(indices, IndexList) else None
    return Iteration(indices.start, indices.stop, indices.step, listed=listed)


def describe(name: str, draft: Draft, others: Mapping[str, Indices | None]) -> JobDescription:
    """The draft as a description; `others` are the jobs that it may wait for."""
    after: list[tuple[DependencyKind, str]] = []
    for how, which, kind in draft.after if others else []:
        other = list(others)[which % len(others)]
        indices = others[other]
        if indices is not None and how == "one":
            after.append((kind, f"{other}:{indices[which % len(indices)]}"))
        elif indices is not None and how == "same" and draft.indices and set(draft.indices) <= set(indices):
            after.append((kind, f"{other}:${{it}}"))
        else:
            after.append((kind, other))
    iteration = None if draft.indices is None else _iteration(draft.indices)
    return JobDescription(
        name,
        Execution(exec="true"),
        msgspec.structs.replace(draft.request, host=draft.host),
        draft.sharing,
        draft.wall_time,
        iteration=iteration,
        after=tuple(entry for kind, entry in after if kind == "after"),
        outcomes=tuple(pair for pair in after if pair[0] != "after"),
        retry=draft.retry,
        priority=draft.priority,
        hold=draft.hold,
    )
