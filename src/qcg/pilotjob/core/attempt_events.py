"""Events of attempts and hosts: starts, ends, reports of live attempts, unreachable and lost nodes."""

from __future__ import annotations

from qcg.pilotjob.core import multinode
from qcg.pilotjob.core.attempt_end import finish_attempt, lose_attempt, requeue_attempt
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Kill, Retract, Stop
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, HostReported, HostUnreachable, NodesLost
from qcg.pilotjob.core.finalize import forget_next_attempt, position_has_begun
from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED
from qcg.pilotjob.core.orphaned import orphan_reason, register_existing
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.records import Attempt, attempt_id, parse_attempt_id
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.host.records import Ended, EndReason, NodeGrant, Running

STOPPED = "it was ended when its manager shut down; the next manager starts it again"
FORGOTTEN = "it had started, but its agent has no record of it any more; how it ended is unknown"
UNKNOWN = "whether it had started is unknown"
DECAY = 0.9
"""Weight of the earlier durations when another attempt has ended."""
WEIGHT = 1 - DECAY


def attempt_started(core: CoreState, event: AttemptStarted) -> None:
    record = event.record
    attempt = core.attempts.get(record.id) or _recreate(core, record.id, record.grant, record.at, record.at)
    if attempt is not None:
        _mark_executing(core, attempt, record.pid, record.at)
        node = core.host_node(attempt.grant.parts[0].node) if attempt in core.orphaned else ""
        if node and core.pool.node(node).reachable and not (attempt.kill_requested or attempt.stop_requested):
            # It still waited in a lane when its host reported, so it was not stopped then.
            core.effects.append(Stop(attempt, EndReason.LOST, orphan_reason(core, attempt)))


def attempt_ended(core: CoreState, event: AttemptEnded) -> None:
    record = event.record
    attempt = core.attempts.get(record.id)
    if attempt is None:
        if record.id in core.cleanups:
            multinode.stray_ended(core, core.cleanups[record.id])
            return
        attempt = _recreate(core, record.id, record.grant, record.started, record.at, over=True)
        if attempt is None:
            return  # a duplicate: hosts repeat records until they are acknowledged
    if record.started:
        _mark_executing(core, attempt, record.pid, record.started)  # the host may report start and end together
    attempt.usage = record.usage
    _record_duration(core, attempt, record)
    if len(attempt.grant.parts) > 1:
        multinode.ended_on_first_node(core, attempt, record)
    else:
        finish_attempt(core, attempt, record, record.at)


def host_reported(core: CoreState, event: HostReported) -> None:
    """Compare the live attempts of a host with the state: attempts it does not have never arrived, or are lost."""
    nodes = set(event.nodes)
    if len(nodes) > 1:
        core.health.sharing_host |= nodes
    for node in event.nodes:
        core.pool.set_available(node, True)
        core.unreachable_since.pop(node, None)
        core.unreachable_reasons.pop(node, None)
        core.first_reports.setdefault(node, core.now)
    core.lost_nodes -= nodes
    live = {running.id: running for running in event.live}
    for cleanup in [cleanup for cleanup in core.cleanups.values() if cleanup.first in nodes]:
        multinode.first_node_reported(core, cleanup, live.pop(cleanup.id, None))
    multinode.repeat_sweeps(core, nodes)
    to_retract: list[Attempt] = []
    for attempt in core.attempts_of_nodes(event.nodes):
        if core.host_node(attempt.grant.parts[0].node) not in nodes or attempt.id in core.cleanups:
            continue
        running = live.pop(attempt.id, None)
        if running is None:
            if attempt.started:
                lose_attempt(core, attempt, FORGOTTEN)
            else:
                requeue_attempt(core, attempt)
            continue
        _resume_live(core, attempt, running)
        if _is_unwatched(attempt, running) and not _is_of_this_manager(core, attempt):
            to_retract.append(attempt)
    for running in live.values():
        adopted = _adopt(core, running, event.nodes)
        if adopted is not None:
            _resume_live(core, adopted, running)
            if _is_unwatched(adopted, running):
                to_retract.append(adopted)
    if to_retract:
        # Prefilled by an earlier manager, in lanes that this manager does not watch for delays.
        core.effects.append(Retract(to_retract))


def _resume_live(core: CoreState, attempt: Attempt, running: Running) -> None:
    """Continue with an attempt that its host still has."""
    if running.pid:
        _mark_executing(core, attempt, running.pid, running.started)
    if attempt.kill_requested:
        core.effects.append(Kill(attempt))
    elif attempt.stop_requested and (core.shutdown or attempt in core.orphaned):
        core.effects.append(Stop(attempt, EndReason.CLOSED, STOPPED))
    elif attempt in core.orphaned and attempt.started:
        core.effects.append(Stop(attempt, EndReason.LOST, orphan_reason(core, attempt)))
    else:
        # An earlier manager wanted to end it with itself, and could not. Otherwise its host is ending it already.
        attempt.stop_requested = False
    if attempt.lane is not None:
        # An earlier retract may not have reached the host.
        attempt.lane.retracted = False
        core.watch(attempt.lane)


def _is_unwatched(attempt: Attempt, running: Running) -> bool:
    """Whether an attempt waits on its host in no lane that this manager knows."""
    return attempt.lane is None and not running.pid


def _is_of_this_manager(core: CoreState, attempt: Attempt) -> bool:
    """Whether this manager has scheduled an attempt: then it is about to start, or waits for a connection."""
    node = core.host_node(attempt.grant.parts[0].node)
    return attempt.scheduled > core.first_reports.get(node, attempt.scheduled)


def _adopt(core: CoreState, running: Running, nodes: list[str]) -> Attempt | None:
    """Take over a live attempt that the journal does not know, or kill it if its job is gone.

    `nodes` are the nodes of its host; the node of its grant may have left the run.
    """
    # An attempt reported without a grant holds no cores.
    granted = running.grant or [(nodes[0], (), ())]
    attempt = core.attempts.get(running.id) or _recreate(core, running.id, granted, running.started, core.now)
    if attempt is None:
        multinode.kill_stray(core, running, nodes)
    return attempt


def host_unreachable(core: CoreState, event: HostUnreachable) -> None:
    for node in event.nodes:
        core.pool.set_available(node, False)
        core.unreachable_since.setdefault(node, core.now)
        if event.reason:
            core.unreachable_reasons[node] = event.reason


def nodes_lost(core: CoreState, event: NodesLost) -> None:
    lost = set(event.nodes)
    for node in event.nodes:
        core.pool.set_available(node, False)
        core.unreachable_since.setdefault(node, core.now)
    core.lost_nodes |= lost
    for attempt in core.attempts_of_nodes(event.nodes):
        if len(attempt.grant.parts) > 1:
            multinode.nodes_of_attempt_lost(core, attempt, event.message)
        else:
            # Not requeued as unstarted: the last records of its host may be lost with the node.
            lose_attempt(core, attempt, event.message if attempt.started else f"{event.message}; {UNKNOWN}")
    multinode.strays_lost(core)


def _mark_executing(core: CoreState, attempt: Attempt, pid: int, at: float) -> None:
    """Record a start, unless it is known. `at`: its time by the clock of the host."""
    if attempt.started:
        return
    attempt.pid = pid
    attempt.started = at
    attempt.started_by = core.now
    if attempt.stop_requested and core.shutdown is Disposition.CANCEL_RUNNING:
        # It was running when the manager was told to finish, and only the record came late.
        attempt.kill_requested = True
    core.executing += 1
    core.starts += 1
    core.transition(attempt.job, attempt.position, EXECUTING, attempt, at=at)
    if attempt.position >= 0 and attempt.job.state is QUEUED:
        assert attempt.job.iterations is not None
        attempt.job.iterations.began = at
        core.transition(attempt.job, -1, EXECUTING, at=at)
    dependents = attempt.job.dependents
    if dependents is not None and dependents.outcomes is not None:
        position_has_begun(core, attempt.job, attempt.position)


def _record_duration(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """Add an attempt that has ended to the durations of its request, and to the core-seconds of the run."""
    started = record.started
    if started:
        durations = entry_of(attempt.job, attempt.position).line.durations
        seconds = record.at - started if record.at > started else 0.0
        if seconds > durations.slowest:
            durations.slowest = seconds
            core.estimates += 1
        if not record.exit_code:
            durations.succeeded += 1
        longest = durations.longest
        if longest is None:
            durations.longest = durations.mean = seconds
        else:
            longest *= DECAY
            durations.longest = seconds if seconds > longest else longest
            durations.mean += WEIGHT * (seconds - durations.mean)
        parts = attempt.grant.parts
        core.core_seconds += seconds * (len(parts[0].cores) if len(parts) == 1 else attempt.grant.ncores)


def _recreate(
    core: CoreState, reported_id: str, granted: list[NodeGrant], started: float, at: float, *, over: bool = False
) -> Attempt | None:
    """Recreate an attempt that the journal does not know, if its job waits for exactly this attempt; otherwise None.

    `started` is its start time, or 0; `at` is the time of the report about it. `over`: its host reports its end, which
    counts even on a node that has left the run, provided the attempt used only that node.
    """
    try:
        seq, position, number = parse_attempt_id(reported_id)
    except ValueError:
        return None
    job = core.find_seq(seq)
    if job is None or not job.has_position(position) or core.state_of(job, position) is not QUEUED:
        return None
    if reported_id != attempt_id(seq, position, job.last_number_of(position) + 1):
        return None
    request = entry_of(job, position).line.request
    scheduled = min(started or at, at)
    attempt = Attempt(job, position, number, multinode.grant_of(granted, request), scheduled)
    register_existing(core, attempt)
    forget_next_attempt(core, job, position)
    core.transition(job, position, SCHEDULED, attempt, at=scheduled)
    end_is_known = over and len(attempt.grant.parts) == 1
    if not end_is_known and not all(core.host_node(part.node) for part in attempt.grant.parts):
        lose_attempt(core, attempt, orphan_reason(core, attempt), at)
        return None
    return attempt
