"""Hosts tell how runs begin and end; and what becomes of runs whose hosts do not tell any more."""

from __future__ import annotations

from qcg.pilotjob.core.effects import Kill, KillStray, Requeued
from qcg.pilotjob.core.events import AgentReported, AgentSilent, NodesLost, RunEnded, RunStarted
from qcg.pilotjob.core.records import Grant, NodePart, Run, parse_run_id, run_id
from qcg.pilotjob.core.settling import Outcome, entry_of, make_position_ready, settle
from qcg.pilotjob.core.state import CoreState
from qcg.pilotjob.core.states import State
from qcg.pilotjob.host.records import Ended, NodeGrant, Running

NODE_GONE = "the node it ran on is not part of this run any more"
FORGOTTEN = "it had started, and its agent does not know of it any more: nobody can say how it ended"

MOST_LOSSES = 10
"""A job that has lost so many runs is FAILED even where lost ones are run again: it may be what kills its hosts."""


def run_started(core: CoreState, event: RunStarted) -> None:
    record = event.record
    run = core.runs.get(record.id) or _find_again(core, record.id, record.grant)
    if run is not None:
        _executing(core, run, record.pid, record.at)


def run_ended(core: CoreState, event: RunEnded) -> None:
    record = event.record
    run = core.runs.get(record.id) or _find_again(core, record.id, [])
    if run is None:
        return  # told twice: a host repeats what was not acknowledged
    run.pid = run.pid or record.pid
    run.started = run.started or record.started
    if record.reason == "lost":
        lose(core, run, record.message)
        return
    state, message = _outcome(record)
    core.end_run(run)
    settle(core, Outcome(run.job, run.position, state, message, run, record.exit_code))


def _outcome(record: Ended) -> tuple[State, str]:
    if record.reason == "cancel":
        return State.CANCELED, record.message
    if record.reason == "exit" and record.exit_code == 0:
        return State.SUCCEED, ""
    if record.message:
        return State.FAILED, record.message
    if record.exit_code < 0:
        return State.FAILED, f"ended by signal {-record.exit_code}"
    return State.FAILED, f"exit code {record.exit_code}"


def agent_reported(core: CoreState, event: AgentReported) -> None:
    """An agent has told everything: what the books have on its nodes and the agent does not, it never got, or lost."""
    for node in event.nodes:
        core.pool.set_available(node, True)
    live = {running.id: running for running in event.live}
    nodes = set(event.nodes)
    for run in [run for run in core.runs.values() if run.grant.parts and run.grant.parts[0].node in nodes]:
        running = live.pop(run.id, None)
        if running is None:
            if run.started:
                lose(core, run, FORGOTTEN)
            else:
                _never_arrived(core, run)
            continue
        if running.pid:
            _executing(core, run, running.pid, running.started)
        if run.killed:
            core.effects.append(Kill(run))
    for running in live.values():
        _adopt(core, running, event.nodes[0])


def _adopt(core: CoreState, running: Running, node: str) -> None:
    """A run that the journal had not heard of when the manager died, or of a job that is gone.

    `node` is one of those that its agent looks after; the node that it was given may not be part of this run any more.
    """
    # An agent that died while it started the run does not know its grant: then the run holds nothing, on that node.
    granted = running.grant or [(node, (), ())]
    run = core.runs.get(running.id) or _find_again(core, running.id, granted)
    if run is None:
        core.effects.append(KillStray(running.id, node))
    elif running.pid:
        _executing(core, run, running.pid, running.started)


def agent_silent(core: CoreState, event: AgentSilent) -> None:
    for node in event.nodes:
        core.pool.set_available(node, False)


def nodes_lost(core: CoreState, event: NodesLost) -> None:
    lost = set(event.nodes)
    for node in event.nodes:
        core.pool.set_available(node, False)
    for run in [run for run in core.runs.values() if any(part.node in lost for part in run.grant.parts)]:
        first = run.grant.parts[0].node
        if first not in lost:
            core.effects.append(KillStray(run.id, first))
        lose(core, run, event.message)


def _executing(core: CoreState, run: Run, pid: int, at: float) -> None:
    if run.started:
        return
    run.pid = pid
    run.started = at
    core.enter(run.job, run.position, State.EXECUTING, run)
    if run.position >= 0 and run.job.state is State.QUEUED:
        assert run.job.iterations is not None
        run.job.iterations.began = at
        core.enter(run.job, -1, State.EXECUTING)


def _never_arrived(core: CoreState, run: Run) -> None:
    core.end_run(run)
    if run.killed:
        settle(core, Outcome(run.job, run.position, State.CANCELED, "", run))
    else:
        _queue_again(core, run)


def lose(core: CoreState, run: Run, message: str) -> None:
    """Nobody will ever tell how this run ended."""
    core.end_run(run)
    if run.killed:
        settle(core, Outcome(run.job, run.position, State.CANCELED, message, run))
    elif core.rerun_lost and _losses(core, run) < MOST_LOSSES:
        _queue_again(core, run)
    else:
        settle(core, Outcome(run.job, run.position, State.FAILED, message, run, -1))


def _losses(core: CoreState, run: Run) -> int:
    """How many runs its place has lost, this one included. Those that never arrived at their host harmed nobody."""
    place = (run.job.seq, run.position)
    core.losses[place] = core.losses.get(place, 0) + 1
    return core.losses[place]


def _queue_again(core: CoreState, run: Run) -> None:
    """The id of the run is used up, whether or not it was ever heard of: the next one is another attempt."""
    iterations = run.job.iterations
    if iterations is None:
        run.job.attempts = run.attempt
    else:
        iterations.attempts[run.position] = run.attempt
    core.effects.append(Requeued(run))
    core.enter(run.job, run.position, State.QUEUED)
    make_position_ready(core, run.job, run.position)


def _find_again(core: CoreState, id_told: str, granted: list[NodeGrant]) -> Run | None:
    """The run with this id, made anew when its job still waits for that very attempt. None when it cannot go on."""
    try:
        seq, position, attempt = parse_run_id(id_told)
    except ValueError:
        return None
    job = core.find_seq(seq)
    if job is None or not job.has_position(position) or core.state_of(job, position) is not State.QUEUED:
        return None
    if id_told != run_id(seq, position, job.attempts_of(position) + 1):
        return None
    memory = entry_of(job, position).line.request.memory
    grant = Grant(tuple(NodePart(node, tuple(cores), tuple(gpus), memory) for node, cores, gpus in granted))
    run = Run(job, position, attempt, core.pool.claim(grant), core.now)
    core.begin_run(run)
    core.enter(job, position, State.SCHEDULED, run)
    if run.grant != grant or any(part.node not in core.pool for part in grant.parts):
        lose(core, run, NODE_GONE)
        return None
    return run
