"""Hosts tell how runs begin and end; and what becomes of runs whose hosts do not tell any more."""

from __future__ import annotations

from qcg.pilotjob.core import multinode, prefill
from qcg.pilotjob.core.effects import Kill, Recall, Stop
from qcg.pilotjob.core.events import AgentReported, AgentSilent, NodesLost, RunEnded, RunStarted
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.finishing import finish, give_back, lose
from qcg.pilotjob.core.orphaned import take_up, what_is_gone
from qcg.pilotjob.core.records import Run, parse_run_id, run_id
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import EXECUTING, QUEUED, SCHEDULED
from qcg.pilotjob.host.records import Ended, NodeGrant, Running

STOPPED = "it was ended with its manager, to be run again by the next one"
FORGOTTEN = "it had started, and its agent does not know of it any more: nobody can say how it ended"

UNKNOWN = "nobody can say whether it had begun"


def run_started(core: CoreState, event: RunStarted) -> None:
    record = event.record
    run = core.runs.get(record.id) or _find_again(core, record.id, record.grant, record.at)
    if run is not None:
        _executing(core, run, record.pid, record.at)
        node = core.asked(run.grant.parts[0].node) if run in core.displaced else ""
        if node and core.pool.node(node).available and not (run.killed or run.stopped):
            # It had stood behind another one when its agent reported.
            core.effects.append(Stop(run, "lost", what_is_gone(core, run)))


def run_ended(core: CoreState, event: RunEnded) -> None:
    record = event.record
    run = core.runs.get(record.id)
    if run is None:
        if record.id in core.leaving:
            multinode.stray_ended(core, core.leaving[record.id])
            return
        run = _find_again(core, record.id, record.grant, record.started, over=True)
        if run is None:
            return  # told twice: a host repeats what was not acknowledged
    if record.started and not run.started:
        _started_before_it_ended(core, run, record)
    prefill.learn(run, record)
    if len(run.grant.parts) > 1:
        multinode.ended_on_first(core, run, record)
    else:
        finish(core, run, record)


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
    behind: list[Run] = []
    for run in core.runs_of(event.nodes):
        if core.asked(run.grant.parts[0].node) not in nodes or run.id in core.leaving:
            continue
        running = live.pop(run.id, None)
        if running is None:
            if run.started:
                lose(core, run, FORGOTTEN)
            else:
                give_back(core, run)
            continue
        _goes_on(core, run, running, behind)
    for running in live.values():
        adopted = _adopt(core, running, event.nodes)
        if adopted is not None:
            _goes_on(core, adopted, running, behind)
    if behind:
        # Of an earlier manager. Nobody would notice if the run before them took unexpectedly long.
        core.effects.append(Recall(behind))


def _goes_on(core: CoreState, run: Run, running: Running, behind: list[Run]) -> None:
    """Its agent has it under way. `behind`: those to be called back."""
    if running.pid:
        _executing(core, run, running.pid, running.started)
    if run.killed:
        core.effects.append(Kill(run))
    elif run.stopped:
        core.effects.append(Stop(run, "closed", STOPPED))
    elif run in core.displaced and run.started:
        core.effects.append(Stop(run, "lost", what_is_gone(core, run)))
    if run.lane is not None:
        # What was asked of the agent before may not have reached it.
        run.lane.called_back = False
        core.watch(run.lane)
    elif not running.pid:
        behind.append(run)


def _adopt(core: CoreState, running: Running, nodes: list[str]) -> Run | None:
    """A run that the journal had not heard of when the manager died, or of a job that is gone.

    `nodes` are those that its agent looks after; the node that it was given may not be part of this run any more.
    """
    # One that is told without a grant holds nothing, on that node.
    granted = running.grant or [(nodes[0], (), ())]
    run = core.runs.get(running.id) or _find_again(core, running.id, granted, running.started)
    if run is None:
        multinode.evict(core, running, nodes)
    return run


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
    for run in core.runs_of(event.nodes):
        if len(run.grant.parts) > 1:
            multinode.nodes_of_run_lost(core, run, event.message)
        else:
            # Not given back: what its agent had written down last may be gone with the node.
            lose(core, run, event.message if run.started else f"{event.message}; {UNKNOWN}")
    multinode.strays_lost(core)


def _started_before_it_ended(core: CoreState, run: Run, record: Ended) -> None:
    """A host that has not told the start of a run yet when it ends tells both in one."""
    now, core.now = core.now, record.started
    _executing(core, run, record.pid, record.started)
    core.now = now


def _executing(core: CoreState, run: Run, pid: int, at: float) -> None:
    if run.started:
        return
    run.pid = pid
    run.started = at
    core.executing += 1
    core.enter(run.job, run.position, EXECUTING, run)
    if run.position >= 0 and run.job.state is QUEUED:
        assert run.job.iterations is not None
        run.job.iterations.began = at
        core.enter(run.job, -1, EXECUTING)


def _find_again(
    core: CoreState, id_told: str, granted: list[NodeGrant], started: float, *, over: bool = False
) -> Run | None:
    """The run with this id, made anew when its job still waits for that very attempt. None when it cannot go on.

    `started`: when it was, if it was; whenever it had been scheduled, that was before. `over`: its host tells its end,
    which counts wherever it was, if that was all of it.
    """
    try:
        seq, position, attempt = parse_run_id(id_told)
    except ValueError:
        return None
    job = core.find_seq(seq)
    if job is None or not job.has_position(position) or core.state_of(job, position) is not QUEUED:
        return None
    if id_told != run_id(seq, position, job.attempts_of(position) + 1):
        return None
    memory = entry_of(job, position).line.request.memory
    now, core.now = core.now, min(started or core.now, core.now)
    run = Run(job, position, attempt, multinode.grant_of(granted, memory), core.now)
    take_up(core, run)
    core.enter(job, position, SCHEDULED, run)
    core.now = now
    is_told = over and len(run.grant.parts) == 1
    if not is_told and not all(core.asked(part.node) for part in run.grant.parts):
        lose(core, run, what_is_gone(core, run))
        return None
    return run
