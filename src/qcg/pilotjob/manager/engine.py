"""The engine: feeds events to the core, and carries its effects to journal, report, executor and observers.

Every turn of the event loop in which something happened ends with one scheduling pass and one batch of messages to the
hosts. Commits follow within `COMMIT_DELAY`; until a record is on disk, the host that sent it keeps it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import list_names, pluralize
from qcg.pilotjob.core import effects, events
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.errors import CoreError
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, Event
from qcg.pilotjob.core.job_states import FAILED
from qcg.pilotjob.core.multinode import grant_of
from qcg.pilotjob.core.orphaned import count_adopted, host_node_of
from qcg.pilotjob.core.records import Attempt, parse_attempt_id
from qcg.pilotjob.core.retries import grown_description
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.base import ExecutorFactory, ExecutorObserver, NodeLayout, NumberedRecord
from qcg.pilotjob.host.records import Ended, Launch, NodeGrant, Running
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import DRAINED_NODES, FAILURE_LIMIT_REACHED, MetadataKey, T
from qcg.pilotjob.launch.compose import command_line, compose
from qcg.pilotjob.launch.models import PARALLEL
from qcg.pilotjob.launch.remote import compose_remote, remote_site
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.acks import AckTracker
from qcg.pilotjob.manager.activity import Activity
from qcg.pilotjob.manager.commits import CommitLoop, Counted
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.manager.observers import Observers
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.manager.submission import Submissions
from qcg.pilotjob.report.writer import ReportWriter

log = logging.getLogger(__name__)

STARTS_PER_TURN = 500
"""Maximum number of launches in one turn: hosts start them while the next turn composes more, and a batch of this size
fits into the processor's caches."""


class Engine(ExecutorObserver):
    """Built with everything that it needs. Nothing is started before the executor has gathered its hosts."""

    def __init__(
        self,
        core: Core,
        journal: Journal,
        report: ReportWriter,
        site: Site,
        make_executor: ExecutorFactory,
        shutdown: ShutdownRequest,
        remote_sites: Mapping[str, Site] = MappingProxyType({}),
    ) -> None:
        """`site`: common values of launches on the nodes of the run. `remote_sites`: the same for each remote host,
        by the name of its node."""
        self.core = core
        self.journal = journal
        self.report = report
        # Its own dictionaries, which are filled in as hosts describe their nodes.
        self.site = site = msgspec.structs.replace(
            site, bindings=dict(site.bindings), visible_gpus=dict(site.visible_gpus)
        )
        self.shutdown = shutdown
        self.executor = make_executor(self)
        self.observers = Observers()
        self.activity = Activity(core.state)
        self.observers.subscribe(self.activity)
        self.descriptions = Descriptions(journal)
        self._remote_sites = {
            node: msgspec.structs.replace(
                remote, bindings=dict(remote.bindings), visible_gpus=dict(remote.visible_gpus), rows=site.rows
            )
            for node, remote in remote_sites.items()
        }
        self.views = JobViews(journal, self.descriptions, site, self._remote_sites)
        self.all_done = asyncio.Event()
        self.all_done.set()
        self.gathering = True
        """Not enough hosts are ready yet: nothing is scheduled."""
        self._acks = AckTracker()
        self.commits = CommitLoop(journal, report, core.state, self._acks, self.executor.acknowledge, self._turn_soon)
        self._submissions = Submissions(self, self._turn_soon)
        self._loop = asyncio.get_running_loop()
        self._known_hosts: set[str] = set()
        """Hosts that have reported to this manager."""
        self._turn_due = False
        self._wake_timer: asyncio.TimerHandle | None = None
        """Timer for the next time at which a job may be started that waits for a time."""
        self._closed = False
        """No turn follows, also when the last commit is the first one that works again."""
        self._handlers: dict[type[Effect], Callable[[Any], list[Effect] | None]] = {
            effects.Launch: self._launch,
            effects.Kill: self._kill,
            effects.Stop: self._stop,
            effects.Sweep: self._sweep,
            effects.Retract: self._retract,
            effects.KillStray: self._kill_stray,
            effects.MoreToStart: self._more_to_start,
            effects.FailureLimitReached: self._failure_limit_reached,
            effects.FailureLimitCleared: self._failure_limit_cleared,
            effects.NothingLeftToDo: self._nothing_left_to_do,
            effects.AllDone: self._all_done,
            effects.Added: self._added,
            effects.QueuedIterationsFinal: self._ended_in_bulk,
            effects.IterationsFinal: self._ended_in_bulk,
            effects.Requeued: self._requeued,
            effects.WakeAt: self._wake_at,
            effects.Reran: self._reran,
            effects.NodesDrained: self._nodes_drained,
            effects.Held: self._record_only,
            effects.Released: self._record_only,
            effects.Redescribed: self._redescribed,
            effects.Removed: self._removed,
        }

    @property
    def state(self) -> CoreState:
        return self.core.state

    def dispatch(self, event: Event) -> dict[str, Any]:
        """Handle an event; returns the reply when the event is a request."""
        try:
            return self._apply(self.core.handle(event, time.time()))
        except CoreError:
            raise  # the event was refused, and nothing has changed
        except BaseException:
            self._give_up()
            raise

    def notice(self, text: str) -> None:
        """Log a sentence, and show it to a user who watches the run."""
        log.info("%s", text)
        for show in self.observers.notice:
            show(text)

    def warn(self, text: str) -> None:
        """Log a warning about a probable mistake of the user, and show it to a user who watches the run."""
        log.warning("%s", text)
        for show in self.observers.warning:
            show(text)

    def restored(self, followed: list[Effect]) -> None:
        """Begin with a core that was restored from the journal. `followed`: the effects of restoring it."""
        self.activity.begin_with_past()
        if self.state.unfinished:
            self.all_done.clear()
        self._apply(followed)

    async def submit(self, jobs: list[JobDescription], counted: Counted | None = None) -> dict[str, Any]:
        """Accept jobs. When this returns, they are on disk. When it raises, they can be submitted again: they were
        never there, or, where they could be committed and not synced, they are cancelled and removed."""
        return await self._submissions.submit(jobs, counted)

    def carry_out(self, event: Event, counted: Counted | None = None) -> tuple[dict[str, Any], str]:
        """Handle a request that changes jobs, and commit it together with the number `counted`.

        Returns the reply, and a remark for the client.

        Raises JournalError or ReportError, and changes nothing, when nothing can be written at the moment.
        """
        self.commits.commit()
        reply = self.dispatch(event)
        return reply, self.commit_change(counted)

    def store(self, key: MetadataKey[T], value: T, counted: Counted | None = None) -> str:
        """Set a value in the metadata of the run, and commit it together with the number `counted`.

        Returns a remark for the client.

        Raises JournalError or ReportError, and changes nothing, when nothing can be written at the moment.
        """
        self.commits.commit()
        self.journal.set_metadata(key, value)
        return self.commit_change(counted)

    def commit_change(self, counted: Counted | None) -> str:
        """Commit a change made by a request, and the number `counted`. Returns a remark when that fails."""
        if counted is not None:
            self.journal.set_metadata(counted.key, counted.after)
        self.commits.try_to_commit()
        return "It is done, but cannot be written at the moment; see service.log." if self.commits.stalled else ""

    async def close(self) -> None:
        """Write everything and stop. Nothing is started any more."""
        self._closed = True
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self.activity.close()
        await self.commits.close()

    # -- reports of the executor ------------------------------------------------------------------------------------

    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        for notice in notices:
            self.notice(notice)
        self.gathering = False
        self._turn_soon()

    def node_described(self, node: str, layout: NodeLayout) -> None:
        site = self._remote_sites.get(node, self.site)
        if layout.cpus is not None:
            site.bindings[node] = layout.cpus
        if layout.gpus is not None:
            site.visible_gpus[node] = layout.gpus

    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        handle, cleanups = self.core.handle, self.state.cleanups
        happened: list[Effect] = []
        # Not the times of the records: jobs that wait for these attempts are ready now, however old the records are.
        now = time.time()
        try:
            for record in records:
                body = record.body
                if type(body) is Ended:
                    happened += handle(AttemptEnded(body), now)
                    if body.id in cleanups:
                        self._acks.hold(host, record.number, body.id)
                else:
                    happened += handle(AttemptStarted(body), now)  # type: ignore[arg-type]
            self._acks.handled(host, records[-1].number)
            self._apply(happened)
        except BaseException:
            self._give_up()
            raise

    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        for attempt_id in attempt_ids:
            for node in nodes:
                self.dispatch(events.AttemptSwept(attempt_id, node))

    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        self.dispatch(events.HostReported(nodes, live))
        # A host that this manager knows had only lost its connection: its attempts are not reported again.
        found = 0 if host in self._known_hosts else count_adopted(self.state, live)
        self._known_hosts.add(host)
        if found:
            self.notice(f"{pluralize(found, 'job was', 'jobs were')} found running")

    def host_away(self, host: str, nodes: list[str], reason: str = "") -> None:
        log.warning("host %s is away%s", host, f": {reason}" if reason else "")
        self.dispatch(events.HostUnreachable(nodes, reason))

    def message_received(self, attempt_id: str, text: str) -> None:
        attempt = self._attempt_of(attempt_id, [])
        sender = attempt_id if attempt is None else name_of(attempt.job, attempt.position)
        self.notice(f"{sender} says: {printable(text)}")

    def launch_of(self, ended: Ended) -> Launch | None:
        attempt = self._attempt_of(ended.id, ended.grant)
        if attempt is None or not attempt.grant.parts:
            return None
        description = self.descriptions.of(attempt.job)
        if not description.request.host:
            return None
        return compose_remote(description, attempt, self._site_of(attempt.grant.parts[0].node))

    def _attempt_of(self, attempt_id: str, grant: list[NodeGrant]) -> Attempt | None:
        """An attempt by its id: the one that the core has, or one like it, with this grant, if its job is known."""
        attempt = self.state.attempts.get(attempt_id)
        if attempt is not None:
            return attempt
        try:
            seq, position, number = parse_attempt_id(attempt_id)
        except ValueError:
            return None
        job = self.state.find_seq(seq)
        if job is None or not job.has_position(position):
            return None
        return Attempt(job, position, number, grant_of(grant), 0.0)

    def has_attempts(self, node: str) -> bool:
        return bool(self.state.attempts_of_nodes([node]))

    def nodes_lost(self, nodes: list[str], message: str) -> None:
        self.notice(f"{list_names(nodes)}: {message}")
        self.dispatch(events.NodesLost(nodes, message))

    def executor_failed(self, reason: str) -> None:
        self.shutdown.give_up(Cause.NO_HOST, reason)

    # -- effects ------------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """End the manager after an event that was handled in part only. The core is in an unknown state then: the
        registry stays as it was committed last, and hosts still have their records since."""
        self.commits.stop_writing()
        self.shutdown.give_up_after_defect(self.journal.path.parent)

    def _apply(self, happened: list[Effect]) -> dict[str, Any]:
        """Carry out effects; returns the reply among them."""
        reply: dict[str, Any] = {}
        record, handlers = self.journal.record_transition, self._handlers
        is_observed = bool(self.observers.changed) or log.isEnabledFor(logging.DEBUG)
        for effect in happened:
            # The one effect that is as frequent as all others together.
            if type(effect) is Transition:
                record(effect)
                if is_observed:
                    self._notify(effect)
                if effect.state.is_final:
                    self._ended(effect)
            elif type(effect) is effects.Reply:
                reply = effect.data
            elif further := handlers[type(effect)](effect):
                happened += further
        self._turn_soon()
        return reply

    def _notify(self, transition: Transition) -> None:
        for notify in self.observers.changed:
            notify(transition)
        log.debug("%s %s", name_of(transition.job, transition.position), transition.state.name)

    def _ended(self, transition: Transition) -> None:
        if transition.state is FAILED:
            why = f": {transition.message}" if transition.message else ""
            log.warning("%s FAILED%s", name_of(transition.job, transition.position), why)
            for notify in self.observers.failed:
                notify(transition)
        self.report.ended(self.views.end_of(transition))
        if transition.position < 0:
            self.descriptions.drop(transition.job)

    def _launch(self, effect: effects.Launch) -> None:
        attempt = effect.attempt
        description = self.descriptions.keep(attempt.job)
        if self.core.state.past:
            description = self._with_growth(description, attempt)
        node = attempt.grant.parts[0].node
        if description.request.host:
            self.executor.launch(node, compose_remote(description, attempt, self._site_of(node)))
            return
        launch = compose(description, attempt, self.site)
        if description.execution.model in PARALLEL:
            # Stored now, because it depends on what agents have reported about their nodes.
            command = command_line(description, attempt.position, attempt.grant, attempt.id, self.site, attempt.ordinal)
            self.journal.set_command(attempt, command)
        self.executor.launch(node, launch)

    def _with_growth(self, description: JobDescription, attempt: Attempt) -> JobDescription:
        """The description, with the resources that have grown for an attempt after a retry."""
        past = self.state.past_of(attempt.job, attempt.position)
        return description if past is None or not past.steps else grown_description(description, attempt)

    def _site_of(self, node: str) -> Site:
        """The site of a remote host."""
        return self._remote_sites.get(node) or remote_site(node, self.site.instance)

    def _kill(self, effect: effects.Kill) -> None:
        self.journal.record(effect)
        self.executor.kill(host_node_of(self.state, effect.attempt), effect.attempt.id)

    def _stop(self, effect: effects.Stop) -> None:
        self.journal.record(effect)
        attempt = effect.attempt
        self.executor.kill(host_node_of(self.state, attempt), attempt.id, effect.reason, effect.message)

    def _sweep(self, effect: effects.Sweep) -> list[Effect] | None:
        cleanup = self.state.cleanups.get(effect.attempt_id)
        if cleanup is None or self.executor.same_host(cleanup.first, effect.node):
            # A host ends an attempt on all its nodes at once.
            return self.core.handle(events.AttemptSwept(effect.attempt_id, effect.node), time.time())
        self.executor.sweep(effect.node, effect.attempt_id)
        return None

    def _retract(self, effect: effects.Retract) -> None:
        node = host_node_of(self.state, effect.attempts[0])
        self.executor.retract(node, [attempt.id for attempt in effect.attempts])

    def _kill_stray(self, effect: effects.KillStray) -> None:
        log.warning("stray attempt on %s: %s belongs to no job, and is ended", effect.node, effect.attempt_id)
        self.executor.kill(effect.node, effect.attempt_id)

    def _more_to_start(self, effect: effects.MoreToStart) -> None:
        # Not at once: this turn is not over, and no other one is scheduled before its end.
        self._loop.call_soon(self._turn_soon)

    def _failure_limit_reached(self, effect: effects.FailureLimitReached) -> None:
        self.journal.set_metadata(FAILURE_LIMIT_REACHED, True)
        # In the next turn: a further allocation must not start more jobs, however this manager ends.
        self.commits.require_commit()
        self.notice(f"{effect.reason}: no job is started any more, and running jobs continue")

    def _failure_limit_cleared(self, effect: effects.FailureLimitCleared) -> None:
        self.journal.set_metadata(FAILURE_LIMIT_REACHED, False)
        self.notice("the failures of a refused submission do not count: jobs are started again")

    def _nothing_left_to_do(self, effect: effects.NothingLeftToDo) -> None:
        if not self._submissions.may_be_refused:  # otherwise the next scheduling pass decides
            self.shutdown.request(Cause.FAILURES, effect.reason)

    def _all_done(self, effect: effects.AllDone) -> None:
        self.all_done.set()
        for notify in self.observers.all_done:
            notify()

    def _added(self, effect: effects.Added) -> None:
        self.journal.record(effect)
        self.all_done.clear()

    def _ended_in_bulk(self, effect: effects.QueuedIterationsFinal | effects.IterationsFinal) -> None:
        self.journal.record(effect)
        for notify in self.observers.many_ended:
            notify()

    def _requeued(self, effect: effects.Requeued) -> None:
        self.journal.record(effect)
        # Otherwise the next manager would treat the next attempt as a stray, and kill it.
        self.commits.require_commit()

    def _reran(self, effect: effects.Reran) -> None:
        self.journal.record(effect)
        self.activity.forget_failures()
        self.descriptions.forget(effect.job)
        self.all_done.clear()
        # Otherwise the next manager would treat the next attempt as a stray, and kill it.
        self.commits.require_commit()

    def _redescribed(self, effect: effects.Redescribed) -> None:
        self.journal.record(effect)
        self.descriptions.forget(effect.job)

    def _wake_at(self, effect: effects.WakeAt) -> None:
        """Run a scheduling pass at this time. An earlier pass requests the next one."""
        at = self._loop.time() + max(effect.at - time.time(), 0.0)
        if self._wake_timer is not None:
            if self._wake_timer.when() <= at:
                return
            self._wake_timer.cancel()
        self._wake_timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._wake_timer = None
        self._turn_soon()

    def _nodes_drained(self, effect: effects.NodesDrained) -> None:
        self.journal.set_metadata(DRAINED_NODES, effect.drained)
        self.notice(effect.notice)

    def _record_only(self, effect: effects.Held | effects.Released) -> None:
        self.journal.record(effect)

    def _removed(self, effect: effects.Removed) -> None:
        self.journal.record(effect)
        self.activity.forget_failures()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if self._closed:
            return
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)
        self.commits.commit_soon()

    def _turn(self) -> None:
        if self._closed or self.commits.broken:
            return
        try:
            if self.commits.must_commit:
                self.commits.try_to_commit()
            self._submissions.remove_refused()
            if not (self.commits.stalled or self.gathering):
                self.dispatch(events.Schedule(STARTS_PER_TURN))
        finally:
            self._turn_due = False
        self.executor.flush()
        self.activity.turned()
