"""Named resources of submitted jobs: which of them are counters of nodes, and whether there is enough of each."""

from __future__ import annotations

from msgspec.structs import replace

from qcg.pilotjob.core.pool import Pool
from qcg.pilotjob.description.errors import suggestion
from qcg.pilotjob.description.model import ResourceRequest


def with_counters_of_nodes(pool: Pool, request: ResourceRequest) -> ResourceRequest:
    """The request of a job, in which names that nodes have are counters of nodes.

    Job descriptions do not tell counters of the run and of nodes apart.
    """
    extra = request.extra
    if extra is None or pool.names_on_nodes.isdisjoint(extra.names_of_run):
        return request
    on_node = [counter for counter in extra.of_run if counter[0] in pool.names_on_nodes]
    of_run = tuple([counter for counter in extra.of_run if counter[0] not in pool.names_on_nodes])
    extra = replace(extra, on_node=tuple(sorted([*extra.on_node, *on_node])), of_run=of_run)
    return replace(request, extra=extra, one_node=request.one_node or request.nodes is None)


def refusals(pool: Pool, request: ResourceRequest) -> list[str]:
    """Why a run can never give the named resources that a job requests: a sentence for each of them."""
    request = with_counters_of_nodes(pool, request)
    extra = request.extra
    if extra is None:
        return []
    totals = pool.counters.totals
    problems = [
        f"it needs {number} {name}, and this run has only {totals[name]}"
        for name, number in extra.of_run
        if number > totals.get(name, number)
    ]
    known = tuple(sorted({*totals, *pool.names_on_nodes}))
    for name, number in [*extra.of_run, *extra.on_node]:
        if name not in known:
            hint = suggestion(name, known) if known else f"; give it to the run with --resource {name}={number}"
            problems.append(f"it needs {number} {name}, and this run has no resource of that name{hint}")
    where = "no remote host" if request.host else "no node"
    for name, number in extra.on_node:
        most = _most_on_a_node(pool, name, request)
        if name in known and number > most:
            has = f"more than {most}" if most else "any"
            problems.append(f"it needs {number} {name} on a node, and {where} has {has}")
    return problems


def _most_on_a_node(pool: Pool, name: str, request: ResourceRequest) -> int:
    """The most that a node on which the job could run has of a counter."""
    specs = [node.spec for group in pool.target(request).groups for node in group.nodes]
    return max([dict(spec.counters).get(name, 0) for spec in specs], default=0)
