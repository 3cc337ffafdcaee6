"""Hosts tell how runs begin and end; and what becomes of runs whose hosts do not tell any more."""

from __future__ import annotations

from qcg.pilotjob.core import multinode, prefill
from qcg.pilotjob.core.attempt_end import finish, lose_attempt, requeue_attempt
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Kill, Retract, Stop
from qcg.pilotjob.core.events import AgentReported, AgentUnreachable, AttemptEnded, AttemptStarted, NodesLost
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED
from qcg.pilotjob.core.orphaned import orphan_reason, register_existing
from qcg.pilotjob.core.records import Attempt, attempt_id, parse_attempt_id
from qcg.pilotjob.host.records import Ended, NodeGrant, Running

STOPPED = "it was ended with its manager, to be run again by the next one"
FORGOTTEN = "it had started, and its agent does not know of it any more: nobody can say how it ended"

UNKNOWN = "nobody can say whether it had begun"


def attempt_started(core: CoreState, event: AttemptStarted) -> None:
    record = event.record
    attempt = core.attempts.get(record.id) or _recreate(core, record.id, record.grant, record.at)
    if attempt is not None:
        _mark_executing(core, attempt, record.pid, record.at)
        node = core.agent_node(attempt.grant.parts[0].node) if attempt in core.orphaned else ""
        if node and core.pool.node(node).available and not (attempt.killed or attempt.stopped):
            # It had stood behind another one when its agent reported.
            core.effects.append(Stop(attempt, "lost", orphan_reason(core, attempt)))


def attempt_ended(core: CoreState, event: AttemptEnded) -> None:
    record = event.record
    attempt = core.attempts.get(record.id)
    if attempt is None:
        if record.id in core.cleanups:
            multinode.stray_ended(core, core.cleanups[record.id])
            return
        attempt = _recreate(core, record.id, record.grant, record.started, over=True)
        if attempt is None:
            return  # told twice: a host repeats what was not acknowledged
    if record.started and not attempt.started:
        _started_before_it_ended(core, attempt, record)
    prefill.record_duration(attempt, record)
    if len(attempt.grant.parts) > 1:
        multinode.ended_on_first(core, attempt, record)
    else:
        finish(core, attempt, record)


def agent_reported(core: CoreState, event: AgentReported) -> None:
    """An agent has told everything: what the books have on its nodes and the agent does not, it never got, or lost."""
    nodes = set(event.nodes)
    for node in event.nodes:
        core.pool.set_available(node, True)
        core.unreachable_since.pop(node, None)
    core.lost_nodes -= nodes
    live = {running.id: running for running in event.live}
    for cleanup in [cleanup for cleanup in core.cleanups.values() if cleanup.first in nodes]:
        multinode.reported(core, cleanup, live.pop(cleanup.id, None))
    multinode.ask_again(core, nodes)
    lane_depth: list[Attempt] = []
    for attempt in core.attempts_of_nodes(event.nodes):
        if core.agent_node(attempt.grant.parts[0].node) not in nodes or attempt.id in core.cleanups:
            continue
        running = live.pop(attempt.id, None)
        if running is None:
            if attempt.started:
                lose_attempt(core, attempt, FORGOTTEN)
            else:
                requeue_attempt(core, attempt)
            continue
        _goes_on(core, attempt, running, lane_depth)
    for running in live.values():
        adopted = _adopt(core, running, event.nodes)
        if adopted is not None:
            _goes_on(core, adopted, running, lane_depth)
    if lane_depth:
        # Of an earlier manager. Nobody would notice if the run before them took unexpectedly long.
        core.effects.append(Retract(lane_depth))


def _goes_on(core: CoreState, attempt: Attempt, running: Running, lane_depth: list[Attempt]) -> None:
    """Its agent has it under way. `behind`: those to be called back."""
    if running.pid:
        _mark_executing(core, attempt, running.pid, running.started)
    if attempt.killed:
        core.effects.append(Kill(attempt))
    elif attempt.stopped:
        core.effects.append(Stop(attempt, "closed", STOPPED))
    elif attempt in core.orphaned and attempt.started:
        core.effects.append(Stop(attempt, "lost", orphan_reason(core, attempt)))
    if attempt.lane is not None:
        # What was asked of the agent before may not have reached it.
        attempt.lane.retracted = False
        core.watch(attempt.lane)
    elif not running.pid:
        lane_depth.append(attempt)


def _adopt(core: CoreState, running: Running, nodes: list[str]) -> Attempt | None:
    """A run that the journal had not heard of when the manager died, or of a job that is gone.

    `nodes` are those that its agent looks after; the node that it was given may not be part of this run any more.
    """
    # One that is told without a grant holds nothing, on that node.
    granted = running.grant or [(nodes[0], (), ())]
    attempt = core.attempts.get(running.id) or _recreate(core, running.id, granted, running.started)
    if attempt is None:
        multinode.evict(core, running, nodes)
    return attempt


def agent_silent(core: CoreState, event: AgentUnreachable) -> None:
    for node in event.nodes:
        core.pool.set_available(node, False)
        core.unreachable_since.setdefault(node, core.now)


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
            # Not given back: what its agent had written down last may be gone with the node.
            lose_attempt(core, attempt, event.message if attempt.started else f"{event.message}; {UNKNOWN}")
    multinode.strays_lost(core)


def _started_before_it_ended(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """A host that has not told the start of a run yet when it ends tells both in one."""
    now, core.now = core.now, record.started
    _mark_executing(core, attempt, record.pid, record.started)
    core.now = now


def _mark_executing(core: CoreState, attempt: Attempt, pid: int, at: float) -> None:
    if attempt.started:
        return
    attempt.pid = pid
    attempt.started = at
    core.executing += 1
    core.transition(attempt.job, attempt.position, EXECUTING, attempt)
    if attempt.position >= 0 and attempt.job.state is QUEUED:
        assert attempt.job.iterations is not None
        attempt.job.iterations.began = at
        core.transition(attempt.job, -1, EXECUTING)


def _recreate(
    core: CoreState, id_told: str, granted: list[NodeGrant], started: float, *, over: bool = False
) -> Attempt | None:
    """The run with this id, made anew when its job still waits for that very attempt. None when it cannot go on.

    `started`: when it was, if it was; whenever it had been scheduled, that was before. `over`: its host tells its end,
    which counts wherever it was, if that was all of it.
    """
    try:
        seq, position, number = parse_attempt_id(id_told)
    except ValueError:
        return None
    job = core.find_seq(seq)
    if job is None or not job.has_position(position) or core.state_of(job, position) is not QUEUED:
        return None
    if id_told != attempt_id(seq, position, job.attempts_of(position) + 1):
        return None
    memory = entry_of(job, position).line.request.memory
    now, core.now = core.now, min(started or core.now, core.now)
    attempt = Attempt(job, position, number, multinode.grant_of(granted, memory), core.now)
    register_existing(core, attempt)
    core.transition(job, position, SCHEDULED, attempt)
    core.now = now
    is_told = over and len(attempt.grant.parts) == 1
    if not is_told and not all(core.agent_node(part.node) for part in attempt.grant.parts):
        lose_attempt(core, attempt, orphan_reason(core, attempt))
        return None
    return attempt
