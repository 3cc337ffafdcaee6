"""Checks of jobs for remote hosts when they are submitted."""

from __future__ import annotations

from qcg.pilotjob.core.node_group import SlotGroup
from qcg.pilotjob.core.pool import Pool
from qcg.pilotjob.description.errors import quoted, single_problem, suggestion
from qcg.pilotjob.description.model import ANY_HOST, JobDescription, ResourceRequest

CONFIGURED = "hosts are configured in ~/.config/qcg-pm/hosts.toml, or in the file given with --hosts"


def why_no_host(pool: Pool, description: JobDescription) -> str | None:
    """Why the host that a job names cannot run it, whatever its resources; None if it can."""
    host = description.request.host
    if not pool.hosts:
        return f"it is for {_named(host)}, and no remote host is configured; {CONFIGURED}"
    if host == ANY_HOST:
        return None
    group = next((group for group in pool.hosts if group.name == host), None)
    if group is None:
        hint = suggestion(host, tuple(group.name for group in pool.hosts))
        return f"there is no {_named(host)}{hint}; {CONFIGURED}".replace("?;", "?")
    wanted = description.remote.owner if description.remote is not None else ""
    owner = group.nodes[0].spec.owner
    if wanted and wanted != owner:
        has = f"has the owner {quoted(owner)}" if owner else "has no owner"
        return f"its owner is {quoted(wanted)}, and {_named(host)} {has} in hosts.toml; change one of them"
    return None


def shared_total(pool: Pool, request: ResourceRequest, *, of_cores: bool) -> int:
    """The number of cores or nodes that an iteration scheduler shares out: the number in the group that the request
    names, or in the largest host for any host."""
    target = pool.target(request)
    if any(isinstance(group, SlotGroup) for group in target.groups):
        raise single_problem(
            f"{_named(request.host)} may run jobs through a batch system, so that there is no number of cores or nodes"
            " to share out; give numCores or numNodes without a scheduler"
        )
    if of_cores:
        return target.total_cores
    return max((len(group.nodes) for group in target.groups), default=0)


def _named(host: str) -> str:
    return "any host" if host == ANY_HOST else f"host {quoted(host)}"
