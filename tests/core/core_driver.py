"""Helpers for tests of the core: one-line descriptions and nodes, effects as text, and a driver of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from qcg.pilotjob.core import sanity
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.effects import (
    Added,
    AllDone,
    Effect,
    FailureLimitCleared,
    FailureLimitReached,
    Held,
    IterationsFinal,
    Kill,
    KillStray,
    Launch,
    MoreToStart,
    NodesDrained,
    NothingLeftToDo,
    QueuedIterationsFinal,
    Redescribed,
    Released,
    Removed,
    Reply,
    Requeued,
    Reran,
    Retract,
    Stop,
    Sweep,
    Transition,
    WakeAt,
)
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Cancel,
    Deadline,
    DrainNodes,
    Event,
    Hold,
    HostReported,
    HostUnreachable,
    NodesLost,
    Release,
    Remove,
    Rerun,
    RerunCandidate,
    ResumeNodes,
    Schedule,
    SetJobs,
    ShutDown,
    Submit,
)
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, Grant, parse_attempt_id
from qcg.pilotjob.core.rerun import unsuccessful
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.description.changes import JobChange
from qcg.pilotjob.description.model import (
    Amount,
    DependencyKind,
    Execution,
    ExtraResources,
    Iteration,
    JobDescription,
    ResourceRequest,
    RetryPolicy,
    Sharing,
)
from qcg.pilotjob.host.records import Ended, NodeGrant, Running, Started

Range = int | tuple[int, int | None] | None


ON_NODES = ("fpga", "scratch")
"""Names of counters of nodes; all other counters belong to the run."""


def node(name: str, cores: int, gpus: int = 0, memory: int = 0, **counters: int) -> NodeSpec:
    ids = tuple(str(gpu) for gpu in range(gpus))
    return NodeSpec(name, tuple(range(cores)), ids, memory, counters=tuple(sorted(counters.items())))


def extra(gpu: int = 0, **counters: int) -> ExtraResources:
    """A part of a GPU in thousandths, and named counters."""
    named = sorted(counters.items())
    on_node = tuple([(name, number) for name, number in named if name in ON_NODES])
    return ExtraResources(gpu, on_node, tuple([(name, number) for name, number in named if name not in ON_NODES]))


def machine(*cores: int) -> list[NodeSpec]:
    """Nodes n1, n2 … with the given numbers of cores."""
    return [node(f"n{number}", count) for number, count in enumerate(cores, 1)]


def amount(value: Range) -> Amount | None:
    """`3` is exactly three, `(2, 5)` a range, `(2, None)` a range without end."""
    if value is None:
        return None
    return Amount(value, value) if isinstance(value, int) else Amount(*value)


def request(
    cores: Range = None,
    nodes: Range = None,
    gpus: int = 0,
    memory: int = 0,
    one: bool = False,
    extra: ExtraResources | None = None,
) -> ResourceRequest:
    if cores is None and nodes is None:
        cores = 1
    further = gpus or memory or (extra is not None and extra.is_on_nodes)
    one_node = one or (nodes is None and bool(further))
    return ResourceRequest(amount(cores), amount(nodes), gpus, memory, one_node, extra=extra)


def job(
    name: str,
    cores: Range = None,
    nodes: Range = None,
    *,
    gpus: int = 0,
    memory: int = 0,
    one: bool = False,
    extra: ExtraResources | None = None,
    its: int | range | None = None,
    after: str | tuple[str, ...] = "",
    outcomes: str = "",
    sharing: Sharing | None = None,
    wt: float | None = None,
    retry: RetryPolicy | None = None,
    priority: int = 0,
    hold: bool = False,
) -> JobDescription:
    """A description; `after` holds names with spaces between them, `outcomes` pairs such as `afterany=a`."""
    pairs = [entry.split("=") for entry in outcomes.split()]
    indices = range(its) if isinstance(its, int) else its
    return JobDescription(
        name,
        Execution(exec="true"),
        request(cores, nodes, gpus, memory, one, extra),
        sharing,
        wt,
        iteration=None if indices is None else Iteration(indices.start, indices.stop, indices.step),
        after=tuple(after.split()) if isinstance(after, str) else after,
        outcomes=tuple((msgspec.convert(kind, DependencyKind), name) for kind, name in pairs),
        retry=retry,
        priority=priority,
        hold=hold,
    )


def reported_grant(grant: Grant) -> list[NodeGrant]:
    """A grant in the form that hosts report."""
    return [(part.node, part.cores, part.gpus) for part in grant.parts]


def effect_text(effect: Effect) -> str:
    """An effect as one line of text."""
    match effect:
        case Added(jobs):
            return f"added {' '.join(job.name for job in jobs)}"
        case Transition(job, position, state, message=message):
            return f"{name_of(job, position)} {state.name}" + (f": {message}" if message else "")
        case QueuedIterationsFinal(job, state):
            return f"rest of {job.name} {state.name}"
        case IterationsFinal(job, bitmap, state, message=message):
            some = " ".join(name_of(job, position) for position, is_set in enumerate(bitmap) if is_set)
            return f"together {some} {state.name}: {message}"
        case Launch(attempt):
            return f"launch {_attempt_name(attempt)} on {attempt.grant}"
        case Kill(attempt):
            return f"kill {_attempt_name(attempt)}"
        case Stop(attempt, reason, _):
            return f"stop {_attempt_name(attempt)}: {reason}"
        case Sweep(attempt_id, where):
            return f"sweep {attempt_id} on {where}"
        case Retract(attempts):
            return f"retract {' '.join(map(_attempt_name, attempts))}"
        case KillStray(attempt_id, where):
            return f"kill stray {attempt_id} on {where}"
        case Requeued(attempt):
            return f"requeued {_attempt_name(attempt)}"
        case Reran(job, positions):
            return f"run again {' '.join(name_of(job, position) for position in positions)}"
        case WakeAt(at):
            return f"wake at {at:g}"
        case Held(job, position):
            return f"held {name_of(job, position)}"
        case Released(job, position):
            return f"released {name_of(job, position)}"
        case Redescribed(job):
            return f"redescribed {job.name}"
        case NodesDrained(_, notice):
            return f"notice: {notice}"
        case Removed(job):
            return f"removed {job.name}"
        case MoreToStart():
            return "more to start"
        case FailureLimitReached(reason):
            return f"limit: {reason}"
        case FailureLimitCleared():
            return "limit cleared"
        case NothingLeftToDo(reason):
            return f"nothing left to do: {reason}"
        case AllDone():
            return "all done"
        case Reply(data):
            return f"reply {data}"


def _attempt_name(attempt: Attempt) -> str:
    name = name_of(attempt.job, attempt.position)
    return name if attempt.number == 1 else f"{name} (attempt {attempt.number})"


def note_holds(holds: dict[int, float], effects: Iterable[Effect]) -> None:
    """Note the holds of whole jobs, by job number, as a registry stores them."""
    for effect in effects:
        match effect:
            case Held(job, -1, since):
                holds[job.seq] = since
            case Released(job, -1) | Removed(job):
                holds.pop(job.seq, None)


class CoreDriver:
    """A core with one event after another, each followed by a sanity check."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        rerun_lost: bool = False,
        available: bool = True,
        sweeping: bool = True,
        counters: Mapping[str, int] | None = None,
        drain_after: int = 0,
        stop_after: int = 0,
    ) -> None:
        """`sweeping`: every sweep is answered at once, and left out of the effects."""
        self.core = Core(
            nodes, rerun_lost=rerun_lost, counters=counters or {}, drain_after=drain_after, stop_after=stop_after
        )
        self._sweeping = sweeping
        self.now = 0.0
        self.effects: list[Effect] = []
        self.holds_on_record: dict[int, float] = {}
        """By job number, the holds of whole jobs that a registry would have."""
        self.launched: list[tuple[int, int, int]] = []
        """Job number, position and number of each attempt."""
        if available:
            for spec in nodes:
                self.now = 0.0
                self.handle(HostReported([spec.name], []))

    def handle(self, event: Event) -> list[str]:
        self.now += 1.0
        self.effects = self.core.handle(event, self.now)
        sanity.check(self.core.state)
        self.launched += [parse_attempt_id(effect.attempt.id) for effect in self.effects if isinstance(effect, Launch)]
        note_holds(self.holds_on_record, self.effects)
        for effect in self.effects if self._sweeping else ():
            if isinstance(effect, Sweep):
                self.effects += self.core.handle(AttemptSwept(effect.attempt_id, effect.node), self.now)
                sanity.check(self.core.state)
        if self._sweeping:
            self.effects = [effect for effect in self.effects if not isinstance(effect, Sweep)]
        return [effect_text(effect) for effect in self.effects]

    @property
    def reply(self) -> dict[str, object]:
        """The reply to the last event."""
        (found,) = [effect.data for effect in self.effects if isinstance(effect, Reply)]
        return found

    def submit(self, *jobs: JobDescription) -> list[str]:
        """Submit jobs; returns the effects after the usual acceptance."""
        lines = self.handle(Submit(list(jobs)))
        names = [description.name for description in jobs]
        reply = {"submitted": len(names), "jobs": names}
        assert lines[:2] == [f"added {' '.join(names)}", f"reply {reply}"]
        return lines[2:]

    def schedule(self) -> list[str]:
        """Run a scheduling pass; returns the launches as `job on n1[0]`."""
        lines = [text for text in self.handle(Schedule()) if not text.startswith("wake at ")]
        launches = [text.removeprefix("launch ") for text in lines if text.startswith("launch ")]
        scheduled = [f"{text.split(' ')[0]} SCHEDULED" for text in launches]
        assert lines == [text for pair in zip(scheduled, lines[1::2], strict=True) for text in pair]
        return launches

    def attempt(self, name: str) -> Attempt:
        """The current attempt of `job` or `job:3`."""
        wanted, _, index = name.partition(":")
        found = self.core.state.jobs[wanted]
        if not index:
            assert found.attempt is not None
            return found.attempt
        assert found.iterations is not None
        position = found.iterations.position(int(index))
        assert position is not None
        return found.iterations.attempts[position]

    def start(self, *names: str) -> list[str]:
        lines = []
        for name in names:
            attempt = self.attempt(name)
            lines += self.handle(AttemptStarted(Started(attempt.id, 1000, self.now, reported_grant(attempt.grant))))
        return lines

    def end(self, *names: str, exit_code: int = 0, reason: str = "exit", message: str = "") -> list[str]:
        lines = []
        for name in names:
            attempt = self.attempt(name)
            lines += self.handle(
                AttemptEnded(Ended(attempt.id, self.now, exit_code, reason, message, attempt.pid, attempt.started))
            )
        return lines

    def cancel(self, *names: str) -> list[str]:
        return self.handle(Cancel(list(names)))

    def hold(self, *names: str) -> list[str]:
        return self.handle(Hold(list(names)))

    def release(self, *names: str) -> list[str]:
        return self.handle(Release(list(names)))

    def set(self, *names: str, change: JobChange) -> list[str]:
        return self.handle(SetJobs(list(names), change))

    def cancel_all(self, message: str = "") -> list[str]:
        return self.handle(ShutDown(Disposition.CANCEL_ALL, message))

    def rerun(self, *names: str, states: Sequence[State] = (), replaced: Sequence[JobDescription] = ()) -> list[str]:
        """Run jobs again, with what a registry would know about them."""
        new = {description.name: description for description in replaced}
        candidates = {}
        for found in self.core.state.jobs.values():
            if unsuccessful(found):
                assert found.spec is not None
                description = new.get(found.name) or msgspec.msgpack.decode(found.spec, type=JobDescription)
                candidates[found.name] = RerunCandidate(
                    description,
                    self.attempts_so_far(found.seq),
                    found.name in new,
                    held_since=self.holds_on_record.get(found.seq, 0.0),
                )
        return self.handle(Rerun(list(names), list(states), candidates))

    def attempts_so_far(self, seq: int) -> dict[int, tuple[int, int]]:
        """By position, the number of attempts of a job."""
        made: dict[int, tuple[int, int]] = {}
        for number_of_job, position, number in self.launched:
            if number_of_job == seq:
                made[position] = (number, number)
        return made

    def remove(self, *names: str) -> list[str]:
        return self.handle(Remove(list(names)))

    def report(self, *nodes: str, live: Sequence[Running] = ()) -> list[str]:
        return self.handle(HostReported(list(nodes), list(live)))

    def silent(self, *nodes: str) -> list[str]:
        return self.handle(HostUnreachable(list(nodes)))

    def sweep(self, name: str, *nodes: str) -> list[str]:
        """Report from these nodes that no process of the attempt is left."""
        attempt_id = self.attempt(name).id
        return [line for node in nodes for line in self.handle(AttemptSwept(attempt_id, node))]

    def suspend(self) -> list[str]:
        return self.handle(ShutDown(Disposition.REQUEUE, "the time is over"))

    def finish(self) -> list[str]:
        return self.handle(ShutDown(Disposition.CANCEL_RUNNING, "told to finish"))

    def deadline(self, at: float | None) -> None:
        assert self.handle(Deadline(at)) == []

    def lose(self, *nodes: str, message: str = "the node is gone") -> list[str]:
        return self.handle(NodesLost(list(nodes), message))

    def drain(self, *nodes: str) -> list[str]:
        return self.handle(DrainNodes(list(nodes)))

    def resume(self, *nodes: str) -> list[str]:
        return self.handle(ResumeNodes(list(nodes)))

    def running(self, name: str) -> Running:
        """The attempt as its host reports it."""
        attempt = self.attempt(name)
        return Running(attempt.id, 1000, 1.0, reported_grant(attempt.grant))

    def states(self) -> dict[str, str]:
        return {found.name: found.state.name for found in self.core.state.jobs.values()}

    def iteration_states(self, name: str) -> list[str]:
        iterations = self.core.state.jobs[name].iterations
        assert iterations is not None
        return [State(state).name for state in iterations.states]
