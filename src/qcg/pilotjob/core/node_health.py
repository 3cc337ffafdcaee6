"""Nodes that fail for reasons of their own: which failures count against a node, and how further attempts avoid it.

A failure counts against a node when the node was lost under an attempt, or when the same job, with the same resources,
then succeeded on another node on which nothing else has failed around that time. For an attempt that could not be
started it is enough that the other node could start the job. So neither a defect of a job nor an outage that all nodes
see is taken for the fault of a node. Only failures in a row count: an attempt that succeeds on a node clears it.
"""

from __future__ import annotations

import math

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.drain import drain_failing
from qcg.pilotjob.core.feasibility import why_never
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt, Failure, NodeFailures, Past
from qcg.pilotjob.description.model import ResourceRequest
from qcg.pilotjob.host.records import EndReason

AVOID_SECONDS = 60.0
"""Seconds for which an attempt that is ready waits for another node than the one on which the last one failed, if
another node could take it. With a shorter `patience`, it waits no longer than that."""
CLEAN_SECONDS = 60.0
"""Length of the failure-free period, in seconds before a failure, that the node where the job then succeeds needs to
serve as proof. Otherwise all nodes may have had the same trouble, or jobs fail by chance."""


# -- failures and successes -------------------------------------------------------------------------------------------


def attempt_failed(core: CoreState, attempt: Attempt, *, started: bool) -> None:
    """Note that an attempt has failed, except by a loss. `started`: its process was started."""
    if started and core.past:
        _blame_others(core, attempt, only=EndReason.UNSTARTABLE)
    for part in attempt.grant.parts:
        core.health.failed_at[part.node] = core.now


def attempt_succeeded(core: CoreState, attempt: Attempt) -> None:
    for part in attempt.grant.parts:
        core.health.failures.pop(part.node, None)
    _blame_others(core, attempt)


def attempt_lost(core: CoreState, attempt: Attempt) -> None:
    """Count the loss of an attempt against its node, once for all attempts that were lost together."""
    health, parts = core.health, attempt.grant.parts
    if attempt in core.orphaned or attempt.kill_requested or attempt.stop_requested:
        return
    for node in [part.node for part in parts if len(parts) == 1 or part.node in core.lost_nodes]:
        if node not in core.first_reports or node in health.sharing_host:
            continue  # where the host has not reported yet, it is not known whether it has several nodes
        failures = health.failures.setdefault(node, NodeFailures())
        if attempt.scheduled > failures.lost_at:
            failures.losses += 1
            failures.lost_at = core.now
            drain_failing(core, node)


def note_failure(core: CoreState, attempt: Attempt, past: Past, cause: str, *, grows: bool) -> None:
    """Remember where an attempt failed whose job is queued again.

    `grows`: the next attempt gets more resources, so that its success says nothing about the node."""
    past.unstartable = past.unstartable or cause == EndReason.UNSTARTABLE
    node = _only_node(core, attempt)
    if cause == EndReason.LOST:
        past.failed_node = ""  # a lost node gets no jobs until it is back, and then it can take this one at once
        return
    past.failed_node = node
    if node and not grows:
        if past.failures is None:
            past.failures = {}
        failures = core.health.failures.setdefault(node, NodeFailures())
        past.failures[node] = Failure(cause, core.now, failures)


def _blame_others(core: CoreState, attempt: Attempt, *, only: str = "") -> None:
    """Count earlier failures of the job against their nodes, now that it succeeds (or can be started) on another one.

    `only`: the one cause that is meant."""
    past = core.past_of(attempt.job, attempt.position)
    if past is None or not past.failures:
        return
    here = {part.node for part in attempt.grant.parts}
    failed_here = max([core.health.failed_at.get(node, -math.inf) for node in here])
    for node, failure in list(past.failures.items()):
        if node in here or (only and failure.cause != only):
            continue
        del past.failures[node]
        is_clean = failed_here < failure.at - CLEAN_SECONDS
        # Something has succeeded on the node since, if it has another record.
        if is_clean and core.health.failures.get(node) is failure.of_node:
            failure.of_node.jobs += 1
            drain_failing(core, node)


# -- the next attempt -------------------------------------------------------------------------------------------------


def node_to_avoid(core: CoreState, past: Past | None, request: ResourceRequest) -> str:
    """The node that the next attempt avoids; empty if none, or if no other node could ever take it."""
    node = "" if past is None else past.failed_node
    return node if node and _others_can_take(core, request, node) else ""


def can_try_elsewhere(core: CoreState, attempt: Attempt) -> bool:
    """Whether a job that could not be started is tried once on another node, although its policy has no retries for it.

    Nothing of the job has run, and only an attempt on another node can distinguish a defect of the job from a defect of
    the node."""
    past = core.past_of(attempt.job, attempt.position)
    if past is not None and past.unstartable:
        if attempt.job.iterations is not None:
            core.health.unstartable.add(attempt.job.seq)
        return False
    if not core.health.limit or attempt.kill_requested or attempt.job.seq in core.health.unstartable:
        return False
    node = _only_node(core, attempt)
    request = entry_of(attempt.job, attempt.position).line.request
    return bool(node) and _others_can_take(core, request, node)


def _others_can_take(core: CoreState, request: ResourceRequest, node: str) -> bool:
    specs = [other.spec for other in core.pool.nodes if not other.drained]
    others = [spec for spec in specs if spec.name != node and spec.name not in core.lost_nodes]
    return why_never(request, others) is None


def _only_node(core: CoreState, attempt: Attempt) -> str:
    """The node of an attempt; empty if there are several, or if it is no longer part of the run."""
    parts = attempt.grant.parts
    return parts[0].node if len(parts) == 1 and parts[0].node in core.pool else ""
