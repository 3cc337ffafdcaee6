"""Which CPUs of an operating system the cores of a grant are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.launch.site import Site


def binding(ids: Sequence[int], usable: Sequence[int]) -> Mapping[int, int] | None:
    """For each of the core ids that an allocation has of a node, the CPU that it is, when the CPUs which an agent may
    use there are these, in the order of sockets, cores and threads, as ids count them. `None` when the node has fewer
    CPUs than it claims.

    An agent that is confined to the cores of the allocation sees as many CPUs as there are ids. One that is not sees
    all of the node, and the ids are places among them.
    """
    if len(ids) == len(usable):
        return dict(zip(sorted(ids), usable, strict=True))
    if max(ids) < len(usable):
        return {id: usable[id] for id in ids}
    return None


def all_bound_cpus(grant: Grant, site: Site) -> list[tuple[int, ...]] | None:
    """The CPUs of each part of a grant, or `None` when not all of its nodes can bind processes."""
    cpus = [bound for part in grant.parts if (bound := bound_cpus(part, site)) is not None]
    return cpus if len(cpus) == len(grant.parts) else None


def bound_cpus(part: NodePart, site: Site) -> tuple[int, ...] | None:
    """The CPUs of this part of a grant, or `None` where processes are not bound."""
    cpus = site.bindings.get(part.node)
    return None if cpus is None else tuple([cpus[core] for core in part.cores])
