"""The engine: feeds events to the core, and carries its effects to journal, report, executor and observers.

Every turn of the event loop in which something happened ends with one scheduling pass and one batch of messages to the
hosts. Commits follow within `COMMIT_DELAY`; until a record is on disk, the host that sent it keeps it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from qcg.pilotjob.common.wording import list_names
from qcg.pilotjob.core import effects, events
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.errors import CoreError
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, Event
from qcg.pilotjob.core.job_states import FAILED
from qcg.pilotjob.core.orphaned import count_adopted, host_node
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.base import ExecutorFactory, ExecutorObserver, NodeLayout, NumberedRecord
from qcg.pilotjob.host.records import Ended, Running
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.launch.compose import command_line, compose
from qcg.pilotjob.launch.models import PARALLEL
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.acks import AckTracker
from qcg.pilotjob.manager.commits import CommitLoop
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.manager.observers import Observers
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.manager.submission import Counted, Submissions
from qcg.pilotjob.report.writer import ReportWriter

log = logging.getLogger(__name__)

STARTS_PER_TURN = 500
"""Hosts begin with these while the next ones are composed, and what is composed stays in the caches."""


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
    ) -> None:
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
        self.descriptions = Descriptions(journal)
        self.views = JobViews(journal, self.descriptions, site)
        self.all_done = asyncio.Event()
        self.all_done.set()
        self.gathering = True
        """Not enough hosts are ready yet: nothing is scheduled."""
        self._acks = AckTracker()
        self.commits = CommitLoop(journal, report, core.state, self._acks, self.executor.acknowledge, self._turn_soon)
        self._submissions = Submissions(self)
        self._loop = asyncio.get_running_loop()
        self._known_hosts: set[str] = set()
        """Hosts that have reported to this manager."""
        self._turn_due = False
        self._handlers: dict[type[Effect], Callable[[Any], list[Effect] | None]] = {
            effects.Launch: self._launch,
            effects.Kill: self._kill,
            effects.Stop: self._stop,
            effects.Sweep: self._sweep,
            effects.Retract: self._retract,
            effects.KillStray: self._kill_stray,
            effects.MoreToStart: self._more_to_start,
            effects.AllDone: self._all_done,
            effects.Added: self._added,
            effects.QueuedIterationsFinal: self._ended_in_bulk,
            effects.IterationsFinal: self._ended_in_bulk,
            effects.Requeued: self._requeued,
            effects.Removed: self._removed,
        }

    @property
    def state(self) -> CoreState:
        return self.core.state

    def dispatch(self, event: Event) -> dict[str, Any]:
        """Handle an event; returns the reply when the event is a request."""
        with self._atomic():
            return self._apply(self.core.handle(event, time.time()))

    def notice(self, text: str) -> None:
        """Log a sentence, and show it to a user who watches the run."""
        log.info("%s", text)
        for show in self.observers.notice:
            show(text)

    def restored(self, followed: list[Effect]) -> None:
        """Begin with a core that was restored from the journal. `followed`: the effects of restoring it."""
        if self.state.unfinished:
            self.all_done.clear()
        self._apply(followed)

    async def submit(self, jobs: list[JobDescription], counted: Counted | None = None) -> dict[str, Any]:
        """Accept jobs. When this returns, they are on disk. When it raises, they can be submitted again: they were
        never there, or, where they could be committed and not synced, they are cancelled and removed."""
        return await self._submissions.submit(jobs, counted)

    def carry_out(self, event: Event) -> tuple[dict[str, Any], str]:
        """Handle a request that changes jobs, and commit it. Returns the reply, and a remark for the client.

        Raises JournalError or ReportError, and changes nothing, when nothing can be written at the moment.
        """
        self.commits.commit()
        reply = self.dispatch(event)
        self.commits.try_to_commit()
        is_stalled = self.commits.stalled
        return reply, "It is done, but cannot be written at the moment; see service.log." if is_stalled else ""

    async def close(self) -> None:
        """Write everything and stop. Nothing is started any more."""
        self._turn_due = True  # so that no turn follows, also when the last commit is the first that works again
        await self.commits.close()

    # -- what the executor reports ------------------------------------------------------------------------------------

    def scheduling_may_begin(self, notices: Sequence[str]) -> None:
        for notice in notices:
            self.notice(notice)
        self.gathering = False
        self._turn_soon()

    def node_described(self, node: str, layout: NodeLayout) -> None:
        if layout.cpus is not None:
            self.site.bindings[node] = layout.cpus
        if layout.gpus is not None:
            self.site.visible_gpus[node] = layout.gpus

    def records_received(self, host: str, records: Sequence[NumberedRecord]) -> None:
        handle, leaving = self.core.handle, self.state.cleanups
        happened: list[Effect] = []
        with self._atomic():
            for record in records:
                body = record.body
                if type(body) is Ended:
                    happened += handle(AttemptEnded(body), body.at)
                    if body.id in leaving:
                        self._acks.hold(host, record.number, body.id)
                else:
                    happened += handle(AttemptStarted(body), body.at)  # type: ignore[arg-type]
            self._acks.handled(host, records[-1].number)
            self._apply(happened)

    def host_swept(self, host: str, nodes: list[str], attempt_ids: list[str]) -> None:
        for attempt_id in attempt_ids:
            for node in nodes:
                self.dispatch(events.AttemptSwept(attempt_id, node))

    def host_ready(self, host: str, nodes: list[str], live: list[Running]) -> None:
        self.dispatch(events.HostReported(nodes, live))
        # A host that this manager knows had only lost its connection: its attempts are no news.
        found = 0 if host in self._known_hosts else count_adopted(self.state, live)
        self._known_hosts.add(host)
        if found:
            self.notice("1 job was found running" if found == 1 else f"{found} jobs were found running")

    def host_away(self, host: str, nodes: list[str]) -> None:
        log.warning("host %s is away", host)
        self.dispatch(events.HostUnreachable(nodes))

    def nodes_lost(self, nodes: list[str], message: str) -> None:
        self.notice(f"{list_names(nodes)}: {message}")
        self.dispatch(events.NodesLost(nodes, message))

    def executor_failed(self, reason: str) -> None:
        self.shutdown.give_up(Cause.NO_HOST, reason)

    # -- effects ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        """Give up when an event is handled in part only. The core is in an unknown state then: the registry stays as it
        was committed last, and hosts still have their records since."""
        try:
            yield
        except CoreError:
            raise  # the event was refused, and nothing has changed
        except BaseException:
            self.commits.stop_writing()
            self.shutdown.give_up_after_defect(self.journal.path.parent)
            raise

    def _apply(self, happened: list[Effect]) -> dict[str, Any]:
        """Carry out effects; returns the reply among them."""
        reply: dict[str, Any] = {}
        record, handlers = self.journal.record, self._handlers
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
        launch = compose(description, attempt, self.site)
        if description.execution.model in PARALLEL:
            # Stored now, because it depends on what agents have reported about their nodes.
            command = command_line(description, attempt.position, attempt.grant, attempt.id, self.site)
            self.journal.set_command(attempt, command)
        self.executor.launch(attempt.grant.parts[0].node, launch)

    def _kill(self, effect: effects.Kill) -> None:
        self.journal.record(effect)
        self.executor.kill(host_node(self.state, effect.attempt), effect.attempt.id)

    def _stop(self, effect: effects.Stop) -> None:
        self.journal.record(effect)
        attempt = effect.attempt
        self.executor.kill(host_node(self.state, attempt), attempt.id, effect.reason, effect.message)

    def _sweep(self, effect: effects.Sweep) -> list[Effect] | None:
        leaving = self.state.cleanups.get(effect.attempt_id)
        if leaving is None or self.executor.same_host(leaving.first, effect.node):
            # A host ends an attempt on all its nodes at once.
            return self.core.handle(events.AttemptSwept(effect.attempt_id, effect.node), time.time())
        self.executor.sweep(effect.node, effect.attempt_id)
        return None

    def _retract(self, effect: effects.Retract) -> None:
        node = host_node(self.state, effect.attempts[0])
        self.executor.retract(node, [attempt.id for attempt in effect.attempts])

    def _kill_stray(self, effect: effects.KillStray) -> None:
        log.warning("the host of %s runs %s, which no job wants; it is ended", effect.node, effect.attempt_id)
        self.executor.kill(effect.node, effect.attempt_id)

    def _more_to_start(self, effect: effects.MoreToStart) -> None:
        self._loop.call_soon(self._turn_soon)

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
        # Otherwise the next manager would kill the next attempt as one that no job wants.
        self.commits.require_commit()

    def _removed(self, effect: effects.Removed) -> None:
        self.journal.record(effect)

    # -- turns --------------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)
        self.commits.commit_soon()

    def _turn(self) -> None:
        if self.commits.broken:
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
