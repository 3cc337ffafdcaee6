"""Random sequences of events: the guarantees of the core hold in any order."""

from __future__ import annotations

import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from qcg.pilotjob.core import finalize, sanity
from qcg.pilotjob.core.can_progress import why_over
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.effects import Kill, KillStray, Launch, Requeued, Reran, Retract, Stop, Sweep
from qcg.pilotjob.core.errors import SubmissionRejected
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Cancel,
    Deadline,
    DrainNodes,
    Event,
    Hold,
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
    Withdraw,
)
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Attempt, parse_attempt_id
from qcg.pilotjob.core.rerun import UNSUCCESSFUL as UNSUCCESSFUL_STATES
from qcg.pilotjob.core.rerun import unsuccessful
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.restore import SavedRun
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.description.changes import JobChange
from tests.core.core_driver import node, note_holds
from tests.core.effect_checker import EffectChecker, Unit
from tests.core.restart import resume, save_state
from tests.core.simulated_host import SimulatedHost
from tests.core.strategies import COUNTERS, Draft, changes, describe, drafts, node_lists
from tests.support.tiers import per_tier

WHICH = st.integers(0, 100)
SHUTDOWNS = (Disposition.REQUEUE, Disposition.CANCEL_RUNNING, Disposition.CANCEL_ALL)
RARELY = st.integers(1, 10).map(lambda number: number == 7)
ENDS = st.sampled_from(
    [
        *[(0, "exit")] * 3,
        *[(1, "exit"), (5, "exit"), (-9, "exit")],
        *[(-15, "timeout"), (-1, "unstartable"), (-1, "lost"), (1, "staging")],
    ]
)


UNSUCCESSFUL = st.sampled_from(UNSUCCESSFUL_STATES)

LAST_MOMENTS = (Schedule, AttemptStarted, AttemptEnded, AttemptSwept)
"""Events that the journal may have lost when a manager was killed."""


MAX_SINGLE_TRANSITIONS = finalize.MAX_SINGLE_TRANSITIONS


class CoreMachine(RuleBasedStateMachine):
    stop_after = 0

    @initialize(
        nodes=node_lists(),
        rerun_lost=st.booleans(),
        wanted=st.lists(drafts(), min_size=4, max_size=8),
        tick=st.sampled_from([1.0, 0.001]),
        few=st.sampled_from([MAX_SINGLE_TRANSITIONS, 0]),
        drain_after=st.sampled_from([0, 1, 2]),
    )
    def begin(
        self, nodes: list[NodeSpec], rerun_lost: bool, wanted: list[Draft], tick: float, few: int, drain_after: int
    ) -> None:
        finalize.MAX_SINGLE_TRANSITIONS = few
        self.nodes = nodes
        self.tick = tick
        """Seconds between two events; with short attempts, lanes are prefilled."""
        self.rerun_lost = rerun_lost
        self.drain_after = drain_after
        self.core = Core(
            nodes, rerun_lost=rerun_lost, counters=COUNTERS, drain_after=drain_after, stop_after=self.stop_after
        )
        self.checker = EffectChecker(nodes, COUNTERS)
        self.hosts = {spec.name: SimulatedHost(spec.name) for spec in nodes}
        self.base = (SavedRun(0), copy.deepcopy(self.checker))
        """State before `history`: the resumed state, and the checker at that time."""
        self.unanswered: list[tuple[SimulatedHost, str]] = []
        """Sweeps that have not been answered."""
        self.now = 1.0
        self.history: list[tuple[Event, float]] = []
        self.committed = 0
        self.names = 0
        self.started: dict[Unit, str] = {}
        """Attempt of each iteration that really ran and was not lost."""
        self.holds_on_record: dict[int, float] = {}
        """By job number, the holds of whole jobs that a registry would have."""
        self.used_ids: set[str] = set()
        for host in self.hosts.values():
            self.tell_all(host.reconnect(everything=False))
        self.submit_some(wanted)

    # -- what happens -----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        self.now += self.tick
        effects = self.effects = self.core.handle(event, self.now)
        self.history.append((event, self.now))
        note_holds(self.holds_on_record, effects)
        if any(isinstance(effect, Requeued) for effect in effects):
            # The engine commits requests before it starts anything more.
            self.committed = len(self.history)
        sanity.check(self.core.state)
        self.checker.check(effects, scheduling=isinstance(event, Schedule), now=self.now)
        retracted: list[Attempt] = []
        for effect in effects:
            match effect:
                case Retract(attempts):
                    retracted += attempts
                case Launch(attempt):
                    self.check_launch(attempt)
                    self.hosts[attempt.grant.parts[0].node].launch(attempt)
                case Stop(attempt, reason):
                    self.hosts[attempt.grant.parts[0].node].kill(attempt.id, reason)
                case Sweep(attempt_id, node):
                    if self.hosts[node].connected:
                        self.unanswered.append((self.hosts[node], attempt_id))
                case Kill(attempt):
                    self.hosts[attempt.grant.parts[0].node].kill(attempt.id)
                case KillStray(attempt_id, node):
                    self.hosts[node].kill(attempt_id)
                case Reran(job, positions):
                    for position in positions:
                        self.started.pop((job.seq, position), None)
                case Requeued(attempt):
                    really = self.started.get((attempt.job.seq, attempt.position))
                    assert really != attempt.id, f"{attempt.id} waits again, and it was started and is not lost"
        for attempt in retracted:
            host = self.hosts[attempt.grant.parts[0].node]
            host.retract(attempt.id, self.now)
            self.tell_all(host.unreported())

    def check_launch(self, attempt: Attempt) -> None:
        """Check that the attempt has time, and that its cores have no live attempt that is believed to have ended."""
        deadline = self.core.state.deadline
        wall_time = self.checker.jobs[attempt.job.name].demand(attempt.position)[1] or 0.0
        assert deadline is None or self.now + wall_time <= deadline
        assert self.core.state.shutdown is None
        assert not {part.node for part in attempt.grant.parts} & set(self.core.state.health.drained)
        for part in attempt.grant.parts:
            host = self.hosts[part.node]
            old = {**{running.id: running.grant for running in host.live.values()}, **host.ranks}
            for attempt_id, grant in old.items():
                if attempt_id in self.checker.ids and attempt_id not in self.checker.held:
                    taken = {core for node, cores, _ in grant for core in cores if node == part.node}
                    assert not taken & set(part.cores), f"{attempt.id} starts where {attempt_id} still is"

    def tell_all(self, events: list[Event]) -> None:
        for event in events:
            self.handle(event)

    def forget(self, attempt_id: str) -> None:
        """Note that an attempt is lost: its job may be started again."""
        seq, position, _ = parse_attempt_id(attempt_id)
        if self.started.get((seq, position)) == attempt_id:
            del self.started[seq, position]

    def some_job(self, which: int) -> str:
        names = list(self.checker.jobs)
        return names[which % len(names)] if names else "nobody"

    # -- requests ---------------------------------------------------------------------------------------------------

    @rule(wanted=st.lists(drafts(), min_size=1, max_size=6), reverse=st.booleans(), withdraw=RARELY)
    def submit(self, wanted: list[Draft], reverse: bool, withdraw: bool) -> None:
        if reverse:
            wanted = wanted[::-1]
        names = self.submit_some(wanted, reverse=reverse)
        if withdraw and names:
            self.handle(Withdraw(names))

    def submit_some(self, wanted: list[Draft], *, reverse: bool = False) -> list[str]:
        known = {
            name: None if job.description.iteration is None else job.description.iteration.indices()
            for name, job in self.checker.jobs.items()
        }
        descriptions = []
        for draft in wanted:
            self.names += 1
            name = f"j{self.names}"
            descriptions.append(describe(name, draft, known))
            known[name] = draft.indices
        if reverse:
            descriptions.reverse()
        self.checker.submitting = {description.name: description for description in descriptions}
        try:
            self.handle(Submit(descriptions))
        except SubmissionRejected:  # a share or a counter that what exists cannot give
            sanity.check(self.core.state)
            return []
        return [description.name for description in descriptions]

    @rule(picks=st.lists(st.tuples(WHICH, st.none() | st.integers(0, 5)), min_size=1, max_size=3))
    def cancel(self, picks: list[tuple[int, int | None]]) -> None:
        names = [self.some_job(which) for which, _ in picks]
        self.handle(
            Cancel(
                [name if index is None else f"{name}:{index}" for name, (_, index) in zip(names, picks, strict=True)]
            )
        )

    @rule(picks=st.lists(st.tuples(WHICH, st.none() | st.integers(0, 5)), min_size=1, max_size=3), held=st.booleans())
    def hold_or_release(self, picks: list[tuple[int, int | None]], held: bool) -> None:
        names = [self.some_job(which) + ("" if index is None else f":{index}") for which, index in picks]
        self.handle(Hold(names) if held else Release(names))

    @rule(picks=st.lists(WHICH, min_size=1, max_size=3), change=changes())
    def change_some(self, picks: list[int], change: JobChange) -> None:
        self.handle(SetJobs([self.some_job(which) for which in picks], change))

    @rule(which=WHICH)
    def remove(self, which: int) -> None:
        self.handle(Remove([self.some_job(which)]))

    @rule(picks=st.lists(st.tuples(WHICH, st.none() | st.integers(0, 5)), max_size=3), states=st.sets(UNSUCCESSFUL))
    def rerun(self, picks: list[tuple[int, int | None]], states: set[State]) -> None:
        names = [self.some_job(which) if index is None else f"{self.some_job(which)}:{index}" for which, index in picks]
        candidates = {
            name: RerunCandidate(
                self.checker.jobs[name].description,
                self.attempts_so_far(job.seq),
                held_since=self.holds_on_record.get(job.seq, 0.0),
            )
            for name, job in self.core.state.jobs.items()
            if unsuccessful(job)
        }
        self.handle(Rerun(names, sorted(states), candidates))
        self.committed = len(self.history)

    def attempts_so_far(self, seq: int) -> dict[int, tuple[int, int]]:
        made: dict[int, int] = {}
        for number_of_job, position, number in map(parse_attempt_id, self.checker.ids):
            if number_of_job == seq:
                made[position] = max(number, made.get(position, 0))
        return {position: (number, self.checker.over[seq, position]) for position, number in made.items()}

    @rule(late=RARELY)
    def schedule(self, late: bool) -> None:
        """Advance time, sometimes so far that prefilled attempts are retracted and pauses end."""
        if late:
            self.now += 40.0
        self.handle(Schedule())

    # -- runs -------------------------------------------------------------------------------------------------------

    @rule(picks=st.lists(WHICH, min_size=2, max_size=6))
    def start_runs(self, picks: list[int]) -> None:
        for which in picks:
            self.start_some_run(which)

    def start_some_run(self, which: int) -> None:
        waiting = [(host, attempt_id) for host in self.hosts.values() for attempt_id in host.startable()]
        if waiting:
            self.start(*waiting[which % len(waiting)])

    def start(self, host: SimulatedHost, attempt_id: str) -> None:
        assert attempt_id not in self.used_ids, f"{attempt_id} starts for the second time"
        self.used_ids.add(attempt_id)
        seq, position, _ = parse_attempt_id(attempt_id)
        if attempt_id not in host.killed:
            before = self.started.setdefault((seq, position), attempt_id)
            assert before == attempt_id, f"{attempt_id} starts, and {before} was started before"
        host.start(attempt_id, self.now)
        grant = host.live[attempt_id].grant
        for name, _, _ in grant[1:]:
            # An agent that is cut off so long that its node is lost starts nothing for others.
            if name in self.hosts and name not in self.core.state.lost_nodes:
                self.hosts[name].ranks[attempt_id] = grant
        self.tell_all(host.unreported())

    @rule(picks=st.lists(st.tuples(WHICH, ENDS), min_size=1, max_size=2))
    def end_runs(self, picks: list[tuple[int, tuple[int, str]]]) -> None:
        for which, how in picks:
            self.end_some_run(which, how)

    def end_some_run(self, which: int, how: tuple[int, str]) -> None:
        exit_code, reason = how
        attempts = [
            (host, attempt_id)
            for host in self.hosts.values()
            for attempt_id in (host.startable() if reason == "unstartable" else host.live)
        ]
        if attempts:
            host, attempt_id = attempts[which % len(attempts)]
            self.end(host, attempt_id, exit_code, reason)

    def end(self, host: SimulatedHost, attempt_id: str, exit_code: int, reason: str) -> None:
        if reason == "lost" or host.killed.get(attempt_id) in ("lost", "closed"):
            self.forget(attempt_id)
        if exit_code and (self.core.state.shutdown or self.may_be_retried(attempt_id)):
            self.forget(attempt_id)
        host.end(attempt_id, self.now, exit_code, reason)
        self.tell_all(host.unreported())

    def may_be_retried(self, attempt_id: str) -> bool:
        """Whether its job may be started again once the attempt has failed."""
        seq, _, _ = parse_attempt_id(attempt_id)
        return any(job.seq == seq and job.description.retry is not None for job in self.checker.jobs.values())

    @rule(which=WHICH, back=st.booleans())
    def drain_a_node(self, which: int, back: bool) -> None:
        name = self.nodes[which % len(self.nodes)].name
        self.handle(ResumeNodes([name]) if back else DrainNodes([name]))
        # The engine commits requests before it answers.
        self.committed = len(self.history)

    @rule(picks=st.lists(WHICH, min_size=1, max_size=4))
    def sweep(self, picks: list[int]) -> None:
        for which in picks:
            if self.unanswered:
                host, attempt_id = self.unanswered.pop(which % len(self.unanswered))
                if host.connected:
                    host.ranks.pop(attempt_id, None)
                    self.handle(AttemptSwept(attempt_id, host.node))

    # -- agents -----------------------------------------------------------------------------------------------------

    @rule(which=WHICH, in_flight=st.booleans(), for_long=st.booleans())
    def agent_goes_silent(self, which: int, in_flight: bool, for_long: bool) -> None:
        host = list(self.hosts.values())[which % len(self.hosts)]
        self.cut(host, in_flight=in_flight)
        self.handle(HostUnreachable([host.node]))
        if not for_long:
            self.tell_all(host.reconnect(everything=False))

    def cut(self, host: SimulatedHost, *, in_flight: bool) -> None:
        host.disconnect(in_flight=in_flight)
        self.unanswered = [(other, attempt_id) for other, attempt_id in self.unanswered if other is not host]

    @rule(everything=st.booleans())
    def agents_come_back(self, everything: bool) -> None:
        for host in self.hosts.values():
            if not host.connected:
                self.tell_all(host.reconnect(everything=everything))

    @rule(which=WHICH, tell=st.booleans(), really_dead=st.booleans(), for_long=st.booleans())
    def agent_is_lost(self, which: int, tell: bool, really_dead: bool, for_long: bool) -> None:
        """Lose a node for good, or only in the view of the manager, so that its attempts reappear."""
        host = list(self.hosts.values())[which % len(self.hosts)]
        for attempt_id, grant in self.checker.held.items():
            if any(part.node == host.node for part in grant.parts):
                self.forget(attempt_id)
        if really_dead:
            for attempt_id in host.die(self.now, tell=tell):
                self.forget(attempt_id)
        else:
            self.cut(host, in_flight=False)
            # An agent that is cut off ends what others have started on its machine, and starts nothing any more.
            host.ranks.clear()
            for attempt_id in [*host.live, *host.arrived]:
                self.forget(attempt_id)
            host.arrived.clear()
        self.handle(NodesLost([host.node], f"{host.node} is gone"))
        if not for_long:
            self.tell_all(host.reconnect(everything=False))

    @rule(
        starts=st.lists(WHICH, min_size=2, max_size=6),
        ends=st.lists(st.tuples(WHICH, ENDS), max_size=3),
        lost=st.integers(3, 12),
        first=WHICH,
        in_flight=st.booleans(),
    )
    def manager_crashes(
        self, starts: list[int], ends: list[tuple[int, tuple[int, str]]], lost: int, first: int, in_flight: bool
    ) -> None:
        """Lose the last events before the crash from the journal; all agents reconnect and report all attempts."""
        self.handle(Schedule())
        for which in starts:
            self.start_some_run(which)
        for which, how in ends:
            self.end_some_run(which, how)
        self.handle(Schedule())
        kept = len(self.history)
        while lost and kept > self.committed and isinstance(self.history[kept - 1][0], LAST_MOMENTS):
            kept -= 1
            lost -= 1
        self.replay(self.history[:kept])
        hosts = list(self.hosts.values())
        hosts = hosts[first % len(hosts) :] + hosts[: first % len(hosts)]
        for host in hosts:
            self.cut(host, in_flight=in_flight)
        self.handle(HostUnreachable(list(self.hosts)))
        for host in hosts:
            self.tell_all(host.reconnect(everything=True))

    def replay(self, events: list[tuple[Event, float]]) -> None:
        saved, checker = self.base
        self.core, effects = resume(
            saved,
            self.nodes,
            0.0,
            rerun_lost=self.rerun_lost,
            counters=COUNTERS,
            drain_after=self.drain_after,
            stop_after=self.stop_after,
        )
        self.checker = copy.deepcopy(checker)
        self.checker.check(effects)
        for event, at in events:
            if isinstance(event, Submit):
                self.checker.submitting = {description.name: description for description in event.jobs}
            self.checker.check(self.core.handle(event, at), now=at)
        self.history = events

    # -- time -------------------------------------------------------------------------------------------------------

    @rule(left=st.sampled_from([None, 0.0, 5.0, 50.0, 2000.0]))
    def deadline(self, left: float | None) -> None:
        self.handle(Deadline(None if left is None else self.now + left))

    @rule(
        really=RARELY,
        nodes=node_lists(),
        shutdown=st.none() | st.sampled_from(SHUTDOWNS),
        ends=st.lists(st.tuples(WHICH, ENDS), max_size=3),
    )
    def go_on_elsewhere(
        self,
        really: bool,
        nodes: list[NodeSpec],
        shutdown: Disposition | None,
        ends: list[tuple[int, tuple[int, str]]],
    ) -> None:
        """The manager shuts down, or dies without a shutdown; the next one has other nodes."""
        if really:
            if shutdown is not None:
                self.shut_down(shutdown, ends)
            self.move(nodes)

    def shut_down(self, disposition: Disposition, ends: list[tuple[int, tuple[int, str]]]) -> None:
        waiting = [name for name, job in self.core.state.jobs.items() if job.state.name == "QUEUED"]
        self.handle(ShutDown(disposition, "the manager ends"))
        if disposition is not Disposition.CANCEL_ALL:
            states = {name: self.core.state.jobs[name].state.name for name in waiting}
            assert set(states.values()) <= {"QUEUED"}
        self.handle(Schedule())
        for which, how in ends:  # some attempts end before they are stopped
            self.end_some_run(which, how)
        for host in self.hosts.values():
            for attempt_id in [*host.arrived, *host.live] if host.connected else ():
                self.end(host, attempt_id, 0, "exit")
        self.sweep([0] * len(self.unanswered))
        awaited = {name for cleanups in self.core.state.cleanups.values() for name in cleanups.pending}
        silent = {name for name, host in self.hosts.items() if not host.connected}
        assert awaited <= silent
        for attempt in self.core.state.attempts.values():
            assert (
                attempt.id in self.core.state.cleanups
                or attempt.grant.parts[0].node in silent
                or not attempt.grant.parts
            )

    def move(self, nodes: list[NodeSpec]) -> None:
        for host in self.hosts.values():
            for attempt_id in host.die(self.now, tell=False):
                self.forget(attempt_id)
            # Records that the host could not report are read from its ledger.
            host.connected = True
            self.tell_all(host.unreported())
        for attempt_id in self.core.state.attempts:
            self.forget(attempt_id)
        self.unanswered = []
        saved = save_state(self.core.state)
        self.nodes = nodes
        self.checker.nodes_changed(nodes)
        self.base = (saved, copy.deepcopy(self.checker))
        self.hosts = {spec.name: SimulatedHost(spec.name) for spec in nodes}
        self.replay([])
        sanity.check(self.core.state)
        assert not [
            attempt
            for attempt in self.core.state.attempts.values()
            if any(p.node not in self.hosts for p in attempt.grant.parts)
        ]
        for host in self.hosts.values():
            self.tell_all(host.reconnect(everything=False))
        assert not self.core.state.attempts
        self.committed = len(self.history)

    # -- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.finish_everything()
        finally:
            finalize.MAX_SINGLE_TRANSITIONS = MAX_SINGLE_TRANSITIONS

    def finish_everything(self) -> None:
        """Reconnect all hosts and let all attempts end: only jobs with impossible requests are left."""
        if not hasattr(self, "core"):
            return
        self.handle(Deadline(None))
        for host in self.hosts.values():
            self.tell_all(host.reconnect(everything=False))
        self.run_all()
        self.handle(ResumeNodes(list(self.core.state.health.drained)))
        self.run_all()
        if self.core.state.unfinished:
            assert why_over(self.core.state, self.now) is not None
        self.handle(Release(None))
        self.run_all()
        if self.core.state.unfinished:
            assert why_over(self.core.state, self.now) is not None
            self.move([node(f"n{number}", 10, gpus=2, memory=200, fpga=2, scratch=3) for number in range(6)])
            self.run_all()
        assert not list(self.checker.unfinished())
        assert not self.checker.held
        state = self.core.state
        assert state.unfinished == 0
        assert not state.attempts
        assert not state.cleanups
        assert state.pool.free_cores == state.pool.total_cores
        assert all(list(node.spec.gpus) == node.gpus for node in state.pool.nodes)
        assert state.pool.counters.free == COUNTERS

    def run_all(self) -> None:
        busy = True
        while busy:
            self.handle(Schedule())
            busy = False
            for host in self.hosts.values():
                for attempt_id in host.startable():
                    self.start(host, attempt_id)
                for attempt_id in list(host.live):
                    self.end(host, attempt_id, 0, "exit")
                    busy = True
            busy = busy or bool(self.unanswered)
            if not busy and (self.core.state.paused or self.core.state.health.avoiding):
                self.now += 60.0
                busy = True
            self.sweep([0] * len(self.unanswered))


TestMachine = pytest.mark.sampled(CoreMachine.TestCase)
TestMachine.settings = settings(max_examples=per_tier(40, 560), stateful_step_count=40)
