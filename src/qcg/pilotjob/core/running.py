"""Hosts tell how runs begin and end; and what becomes of runs whose hosts do not tell any more."""

from __future__ import annotations

from qcg.pilotjob.core import multinode, prefill
from qcg.pilotjob.core.effects import Kill, Retract, Stop
from qcg.pilotjob.core.events import AgentReported, AgentSilent, AttemptEnded, AttemptStarted, NodesLost
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.finishing import finish, give_back, lose
from qcg.pilotjob.core.orphaned import take_up, what_is_gone
from qcg.pilotjob.core.records import Attempt, attempt_id, parse_attempt_id
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import EXECUTING, QUEUED, SCHEDULED
from qcg.pilotjob.host.records import Ended, NodeGrant, Running

STOPPED = "it was ended with its manager, to be run again by the next one"
FORGOTTEN = "it had started, and its agent does not know of it any more: nobody can say how it ended"

UNKNOWN = "nobody can say whether it had begun"


def attempt_started(core: CoreState, event: AttemptStarted) -> None:
    record = event.record
    attempt = core.attempts.get(record.id) or _find_again(core, record.id, record.grant, record.at)
    if attempt is not None:
        _executing(core, attempt, record.pid, record.at)
        node = core.asked(attempt.grant.parts[0].node) if attempt in core.displaced else ""
        if node and core.pool.node(node).available and not (attempt.killed or attempt.stopped):
            # It had stood behind another one when its agent reported.
            core.effects.append(Stop(attempt, "lost", what_is_gone(core, attempt)))


def attempt_ended(core: CoreState, event: AttemptEnded) -> None:
    record = event.record
    attempt = core.attempts.get(record.id)
    if attempt is None:
        if record.id in core.leaving:
            multinode.stray_ended(core, core.leaving[record.id])
            return
        attempt = _find_again(core, record.id, record.grant, record.started, over=True)
        if attempt is None:
            return  # told twice: a host repeats what was not acknowledged
    if record.started and not attempt.started:
        _started_before_it_ended(core, attempt, record)
    prefill.learn(attempt, record)
    if len(attempt.grant.parts) > 1:
        multinode.ended_on_first(core, attempt, record)
    else:
        finish(core, attempt, record)


def agent_reported(core: CoreState, event: AgentReported) -> None:
    """An agent has told everything: what the books have on its nodes and the agent does not, it never got, or lost."""
    nodes = set(event.nodes)
    for node in event.nodes:
        core.pool.set_available(node, True)
        core.away.pop(node, None)
    core.lost -= nodes
    live = {running.id: running for running in event.live}
    for leaving in [leaving for leaving in core.leaving.values() if leaving.first in nodes]:
        multinode.reported(core, leaving, live.pop(leaving.id, None))
    multinode.ask_again(core, nodes)
    behind: list[Attempt] = []
    for attempt in core.runs_of(event.nodes):
        if core.asked(attempt.grant.parts[0].node) not in nodes or attempt.id in core.leaving:
            continue
        running = live.pop(attempt.id, None)
        if running is None:
            if attempt.started:
                lose(core, attempt, FORGOTTEN)
            else:
                give_back(core, attempt)
            continue
        _goes_on(core, attempt, running, behind)
    for running in live.values():
        adopted = _adopt(core, running, event.nodes)
        if adopted is not None:
            _goes_on(core, adopted, running, behind)
    if behind:
        # Of an earlier manager. Nobody would notice if the run before them took unexpectedly long.
        core.effects.append(Retract(behind))


def _goes_on(core: CoreState, attempt: Attempt, running: Running, behind: list[Attempt]) -> None:
    """Its agent has it under way. `behind`: those to be called back."""
    if running.pid:
        _executing(core, attempt, running.pid, running.started)
    if attempt.killed:
        core.effects.append(Kill(attempt))
    elif attempt.stopped:
        core.effects.append(Stop(attempt, "closed", STOPPED))
    elif attempt in core.displaced and attempt.started:
        core.effects.append(Stop(attempt, "lost", what_is_gone(core, attempt)))
    if attempt.lane is not None:
        # What was asked of the agent before may not have reached it.
        attempt.lane.retracted = False
        core.watch(attempt.lane)
    elif not running.pid:
        behind.append(attempt)


def _adopt(core: CoreState, running: Running, nodes: list[str]) -> Attempt | None:
    """A run that the journal had not heard of when the manager died, or of a job that is gone.

    `nodes` are those that its agent looks after; the node that it was given may not be part of this run any more.
    """
    # One that is told without a grant holds nothing, on that node.
    granted = running.grant or [(nodes[0], (), ())]
    attempt = core.attempts.get(running.id) or _find_again(core, running.id, granted, running.started)
    if attempt is None:
        multinode.evict(core, running, nodes)
    return attempt


def agent_silent(core: CoreState, event: AgentSilent) -> None:
    for node in event.nodes:
        core.pool.set_available(node, False)
        core.away.setdefault(node, core.now)


def nodes_lost(core: CoreState, event: NodesLost) -> None:
    lost = set(event.nodes)
    for node in event.nodes:
        core.pool.set_available(node, False)
        core.away.setdefault(node, core.now)
    core.lost |= lost
    for attempt in core.runs_of(event.nodes):
        if len(attempt.grant.parts) > 1:
            multinode.nodes_of_run_lost(core, attempt, event.message)
        else:
            # Not given back: what its agent had written down last may be gone with the node.
            lose(core, attempt, event.message if attempt.started else f"{event.message}; {UNKNOWN}")
    multinode.strays_lost(core)


def _started_before_it_ended(core: CoreState, attempt: Attempt, record: Ended) -> None:
    """A host that has not told the start of a run yet when it ends tells both in one."""
    now, core.now = core.now, record.started
    _executing(core, attempt, record.pid, record.started)
    core.now = now


def _executing(core: CoreState, attempt: Attempt, pid: int, at: float) -> None:
    if attempt.started:
        return
    attempt.pid = pid
    attempt.started = at
    core.executing += 1
    core.enter(attempt.job, attempt.position, EXECUTING, attempt)
    if attempt.position >= 0 and attempt.job.state is QUEUED:
        assert attempt.job.iterations is not None
        attempt.job.iterations.began = at
        core.enter(attempt.job, -1, EXECUTING)


def _find_again(
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
    take_up(core, attempt)
    core.enter(job, position, SCHEDULED, attempt)
    core.now = now
    is_told = over and len(attempt.grant.parts) == 1
    if not is_told and not all(core.asked(part.node) for part in attempt.grant.parts):
        lose(core, attempt, what_is_gone(core, attempt))
        return None
    return attempt
