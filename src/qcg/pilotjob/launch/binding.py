"""Maps the core ids of grants to CPUs of the operating system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.launch.site import Site


class Layout(Struct, frozen=True):
    """How a batch system counts the CPUs of a node: its ids go through the cores, and through the threads of each."""

    cores: int
    threads: int = 1
    """Hardware threads of each core."""


def binding(
    ids: Sequence[int], usable: Sequence[int], machine: Sequence[Sequence[int]], layout: Layout
) -> Mapping[int, int] | None:
    """For each of the core ids that an allocation has of a node, the CPU that it is. `None` when that is not known:
    the node has other CPUs than it claims.

    `usable`: the CPUs which an agent may use there, in the order of sockets, cores and threads, as ids count them.
    `machine`: the CPUs of each core that is there.
    """
    cpus = _numbered(machine, layout)
    if all(cpus.get(id) in usable for id in ids):
        return {id: cpus[id] for id in ids}
    if len(ids) == len(usable):
        # The agent is confined to the cores of the allocation, wherever these are.
        return dict(zip(sorted(ids), usable, strict=True))
    return None


def binding_by_count(
    ids: Sequence[int], usable: Sequence[int], machine: Sequence[Sequence[int]]
) -> Mapping[int, int] | None:
    """The CPU for each core id of a node that is described by its number of cores alone: the first thread of each core
    while there are enough cores, otherwise all threads. `None` when the node has fewer CPUs. Arguments as for
    `binding`."""
    allowed = frozenset(usable)
    firsts = [next(cpu for cpu in cpus if cpu in allowed) for cpus in machine if not allowed.isdisjoint(cpus)]
    cpus = firsts if len(ids) <= len(firsts) else usable
    return dict(zip(ids, cpus, strict=False)) if len(ids) <= len(cpus) else None


def _numbered(machine: Sequence[Sequence[int]], layout: Layout) -> dict[int, int]:
    """The CPU of each id of a node."""
    one_by_one = [cpu for cpus in machine for cpu in cpus]
    if layout.cores != len(machine) and layout.cores * layout.threads == len(one_by_one):
        return dict(enumerate(one_by_one))  # threads are counted as if they were cores
    if layout.cores > len(machine):
        return {}
    # Of a core with more threads than are counted, the first ones.
    return {
        number * layout.threads + thread: cpu
        for number, cpus in enumerate(machine)
        for thread, cpu in enumerate(cpus[: layout.threads])
    }


def all_bound_cpus(grant: Grant, site: Site) -> list[tuple[int, ...]] | None:
    """The CPUs of each part of a grant, or `None` when not all of its nodes can bind processes."""
    cpus = [bound for part in grant.parts if (bound := bound_cpus(part, site)) is not None]
    return cpus if len(cpus) == len(grant.parts) else None


def bound_cpus(part: NodePart, site: Site) -> tuple[int, ...] | None:
    """The CPUs of this part of a grant, or `None` where processes are not bound."""
    cpus = site.bindings.get(part.node)
    return None if cpus is None else tuple([cpus[core] for core in part.cores])
