"""Carries effects from the core to the rooms that do something about them.

Every turn of the event loop in which something happened ends with one scheduling pass and one batch of messages to the
agents. The journal lags behind by at most `COMMIT_DELAY`: until a record is on disk, the agent that told it keeps it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence

# By its own name, which loads it now: once strangers have taken all descriptors, nothing can be imported any more.
from concurrent.futures.thread import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from qcg.pilotjob.agent.protocol import EndedRecord, Record
from qcg.pilotjob.core import effects, events
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.effects import Effect, Transition
from qcg.pilotjob.core.errors import CoreError
from qcg.pilotjob.core.events import AttemptEnded, AttemptStarted, Event
from qcg.pilotjob.core.job_states import FAILED
from qcg.pilotjob.core.orphaned import agent_node, count_adopted
from qcg.pilotjob.core.records import Attempt, Job
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.executors.agents import AgentExecutor, Listener
from qcg.pilotjob.host.records import Running
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import REPORT_SIZE, MetadataKey
from qcg.pilotjob.launch.compose import command_line, compose
from qcg.pilotjob.launch.models import PARALLEL
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.manager.acks import Acknowledging
from qcg.pilotjob.manager.job_views import Stories
from qcg.pilotjob.manager.observers import Followers
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.writer import ReportWriter

log = logging.getLogger(__name__)

STARTS_A_TURN = 500
"""Their agents begin with them while the next ones are put together, and what is put together stays in the caches."""
COMMIT_DELAY = 0.05
SYNC_DELAY = 0.5
RETRY_DELAY = 1.0


class Counted(NamedTuple):
    """A number in the registry that changes in the same commit as a submission: both are stored, or neither."""

    key: MetadataKey[int]
    before: int
    after: int


class Engine(Listener):
    def __init__(self, core: Core, journal: Journal, report: ReportWriter, site: Site) -> None:
        self.core = core
        self.journal = journal
        self.report = report
        self.site = site
        self.executor: AgentExecutor
        """Set by whoever wires the rooms: executor and engine know each other."""
        self.followers = Followers()
        self.all_done = asyncio.Event()
        self.all_done.set()
        self.nothing_runs = asyncio.Event()
        """Set once all runs have ended after `Suspend`."""
        self.stalled = False
        """Nothing can be written at the moment, so nothing new is started."""
        self.gathering = False
        """Not enough agents are there to begin with."""
        self.broken = False
        """What happened was not carried out to its end: the books are wrong, and nothing may be written any more."""
        self.on_broken: Callable[[], None] = lambda: None
        self.descriptions = Descriptions(journal)
        self.stories = Stories(journal, self.descriptions, site)
        self._loop = asyncio.get_running_loop()
        self._acknowledging = Acknowledging()
        self._seen: dict[str, int] = {}
        """By agent, its last record that is settled and whose effects are not committed yet."""
        self._committed: dict[str, int] = {}
        """The same for what is committed and not synced yet."""
        self._commit_first = False
        """Something has to outlive this process before anything more is started."""
        self._met: set[str] = set()
        """Agents that have reported to this manager."""
        self._unwanted: list[Job] = []
        """Jobs of refused submissions that have not ended yet."""
        self._turn_due = False
        self._commit_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._syncing: set[asyncio.Future[None]] = set()
        self._syncer = ThreadPoolExecutor(1, "sync")

    @property
    def state(self) -> CoreState:
        return self.core.state

    def dispatch(self, event: Event) -> dict[str, Any]:
        """Let something happen; the reply, where the event is a request."""
        with self._whole():
            return self._apply(self.core.handle(event, time.time()))

    def notice(self, text: str) -> None:
        log.info("%s", text)
        for tell in self.followers.notices:
            tell(text)

    def begin(self) -> None:
        """Enough agents are there."""
        self.gathering = False
        self._turn_soon()

    def take_over(self, happened: list[Effect]) -> None:
        """Begin with books that were restored, and with what followed from that."""
        if self.state.unfinished:
            self.all_done.clear()
        self._apply(happened)

    async def submit(self, jobs: list[JobDescription], counted: Counted | None = None) -> dict[str, Any]:
        """Take in jobs. When this returns, they are on disk. When it raises, they can be sent again: they were never
        there; or, where they could be written and not synced, those that had started are gone once they are ended."""
        reported = self.report.length
        reply = self.dispatch(events.Submit(jobs))
        if counted is not None:
            self.journal.set_metadata(counted.key, counted.after)
        try:
            self.commit()
        except Exception:  # whatever it is: its sender gets an error, so the jobs must not run
            self.report.take_back(reported)
            self.dispatch(events.Withdraw(reply["jobs"]))
            if counted is not None:
                self.journal.set_metadata(counted.key, counted.before)
            raise
        taken = [self.state.jobs[name] for name in reply["jobs"]]
        try:
            await self.sync()
        except JournalError as error:
            self._unwanted += taken  # refused, and nobody can say what a crash would leave of them
            self._cancel_refused([job for job in self._still_there(taken) if not job.state.is_final])
            self._remove_unwanted()
            if counted is not None:
                self.journal.set_metadata(counted.key, counted.before)
            self.try_to_commit()
            if self.stalled:
                raise JournalError(
                    f"{error} The jobs were cancelled, which could not be written either: should this manager be killed"
                    " before that works, --resume would run them."
                ) from error
            raise
        return reply

    def carry_out(self, event: Event) -> tuple[dict[str, Any], str]:
        """Carry out a request that changes jobs, and commit it: the reply, and a remark for whoever asked.

        Raises JournalError or ReportError, and changes nothing, when nothing can be written at the moment.
        """
        self.commit()
        reply = self.dispatch(event)
        self.try_to_commit()
        return reply, "It is done, but cannot be written at the moment; see service.log." if self.stalled else ""

    def _cancel_refused(self, jobs: list[Job]) -> None:
        """Cancel jobs of a refused submission. Jobs that have not started leave no entry in the report."""
        reported, unfinished = self.report.length, self.state.unfinished
        self.dispatch(events.Cancel([job.name for job in jobs]))
        if unfinished - self.state.unfinished == len(jobs):  # no other job ended with them
            self.report.take_back(reported)

    def _remove_unwanted(self) -> None:
        unwanted = self._still_there(self._unwanted)
        self._unwanted = [job for job in unwanted if not job.state.is_final]
        if over := [job.name for job in unwanted if job.state.is_final]:
            self.dispatch(events.Remove(over))

    def _still_there(self, jobs: list[Job]) -> list[Job]:
        """Others were removed, and another job may have the name by now."""
        return [job for job in jobs if self.state.jobs.get(job.name) is job]

    # -- what agents tell -------------------------------------------------------------------------------------------

    def agent_told(self, agent: str, records: Sequence[Record]) -> None:
        handle, leaving = self.core.handle, self.state.cleanups
        told: list[Effect] = []
        with self._whole():
            for record in records:
                body = record.body
                if type(record) is EndedRecord:
                    told += handle(AttemptEnded(body), body.at)  # type: ignore[arg-type]
                    if body.id in leaving:
                        self._acknowledging.hold(agent, record.number, body.id)
                else:
                    told += handle(AttemptStarted(body), body.at)  # type: ignore[arg-type]
            self._acknowledging.told(agent, records[-1].number)
            self._apply(told)

    def agent_swept(self, agent: str, nodes: list[str], run_ids: list[str]) -> None:
        for attempt_id in run_ids:
            for node in nodes:
                self.dispatch(events.AttemptSwept(attempt_id, node))

    def agent_ready(self, agent: str, nodes: list[str], live: list[Running]) -> None:
        self.dispatch(events.AgentReported(nodes, live))
        # One that has met this manager before has lost its line only, and tells of nothing new.
        found = 0 if agent in self._met else count_adopted(self.state, live)
        self._met.add(agent)
        if found:
            self.notice("1 job was found running" if found == 1 else f"{found} jobs were found running")

    def agent_away(self, agent: str, nodes: list[str]) -> None:
        log.warning("agent %s is away", agent)
        self.dispatch(events.AgentUnreachable(nodes))

    # -- effects ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What is done in here is done to its end. A defect on the way leaves books that nobody should believe: the
        registry stays as it was committed last, and agents still have what they told since."""
        try:
            yield
        except CoreError:
            raise  # refused, and nothing has changed
        except BaseException:
            self.broken = True
            self.on_broken()
            raise

    def _apply(self, happened: list[Effect]) -> dict[str, Any]:
        reply: dict[str, Any] = {}
        record = self.journal.record
        followed = bool(self.followers.changes) or log.isEnabledFor(logging.DEBUG)
        for effect in happened:
            if isinstance(effect, Transition):
                record(effect)
                if followed:
                    self._tell(effect)
                if effect.state.is_final:
                    self._ended(effect)
            elif isinstance(effect, effects.Launch):
                self._launch(effect.attempt)
            elif isinstance(effect, effects.Kill):
                record(effect)
                self.executor.kill(agent_node(self.state, effect.attempt), effect.attempt.id)
            elif isinstance(effect, effects.Stop):
                record(effect)
                self.executor.kill(
                    agent_node(self.state, effect.attempt), effect.attempt.id, effect.reason, effect.message
                )
            elif isinstance(effect, effects.Sweep):
                if not self._sweep(effect):
                    happened += self.core.handle(events.AttemptSwept(effect.attempt_id, effect.node), time.time())
            elif isinstance(effect, effects.Retract):
                self.executor.retract(agent_node(self.state, effect.attempts[0]), [run.id for run in effect.attempts])
            elif isinstance(effect, effects.KillStray):
                log.warning("agent of %s runs %s, which no job wants; it is ended", effect.node, effect.attempt_id)
                self.executor.kill(effect.node, effect.attempt_id)
            elif isinstance(effect, effects.Reply):
                reply = effect.data
            elif isinstance(effect, effects.MoreToStart):
                self._loop.call_soon(self._turn_soon)
            elif isinstance(effect, effects.AllDone):
                self.all_done.set()
                for told in self.followers.all_done:
                    told()
            elif isinstance(effect, effects.NoAttemptLeft):
                self.nothing_runs.set()
            else:
                record(effect)
                if isinstance(effect, effects.Added):
                    self.all_done.clear()
                elif isinstance(effect, (effects.QueuedIterationsFinal, effects.IterationsFinal)):
                    for told in self.followers.many_ended:
                        told()
                elif isinstance(effect, effects.Requeued):
                    # The next manager must not take the next attempt for one that no job wants.
                    self._commit_first = True
        self._turn_soon()
        return reply

    def _sweep(self, sweep: effects.Sweep) -> bool:
        """False where there is nothing to do: an agent that looks after all nodes of a run ends all of it at once."""
        leaving = self.state.cleanups.get(sweep.attempt_id)
        if leaving is None or self.executor.same_agent(leaving.first, sweep.node):
            return False
        self.executor.sweep(sweep.node, sweep.attempt_id)
        return True

    def _launch(self, run: Attempt) -> None:
        description = self.descriptions.keep(run.job)
        launch = compose(description, run, self.site)
        if description.execution.model in PARALLEL:
            # Not to be found out later: it depends on what agents have told about their nodes.
            self.journal.set_command(run, command_line(description, run.position, run.grant, run.id, self.site))
        self.executor.launch(run.grant.parts[0].node, launch)

    def _tell(self, transition: Transition) -> None:
        for tell in self.followers.changes:
            tell(transition)
        log.debug("%s %s", name_of(transition.job, transition.position), transition.state.name)

    def _ended(self, transition: Transition) -> None:
        if transition.state is FAILED:
            why = f": {transition.message}" if transition.message else ""
            log.warning("%s FAILED%s", name_of(transition.job, transition.position), why)
            for tell in self.followers.failures:
                tell(transition)
        self.report.ended(self.stories.end_of(transition))
        if transition.position < 0:
            self.descriptions.drop(transition.job)

    # -- turns, commits ---------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)
        if self._commit_timer is None:
            self._commit_timer = self._loop.call_later(COMMIT_DELAY, self._commit_later)

    def _turn(self) -> None:
        if self.broken:
            return
        try:
            if self._commit_first:
                self.try_to_commit()
            self._remove_unwanted()
            if not (self.stalled or self.gathering):
                self.dispatch(events.Schedule(STARTS_A_TURN))
        finally:
            self._turn_due = False
        self.executor.flush()

    def _commit_later(self) -> None:
        self._commit_timer = None
        self.try_to_commit()

    def try_to_commit(self) -> None:
        """Commit, or say that it cannot be done, start nothing new and try again soon."""
        try:
            self.commit()
        except (JournalError, ReportError) as error:
            if not self.stalled:
                log.error("%s Until then, no new job is started.", error)
            self.stalled = True
            if self._commit_timer is None:
                self._commit_timer = self._loop.call_later(RETRY_DELAY, self._commit_later)

    def commit(self) -> None:
        """Hand everything to the operating system: it outlives this process from now on."""
        if self.broken:
            raise JournalError("Nothing is written any more, because of the unexpected error that service.log tells.")
        self.journal.set_metadata(REPORT_SIZE, self.report.flush())
        for agent, number in self._acknowledging.settled(self.state.cleanups).items():
            self._seen[agent] = number
            self.journal.set_acked(agent, number)
        self.journal.commit()
        self._committed.update(self._seen)
        self._seen = {}
        self._commit_first = False
        if self.stalled:
            log.info("writing works again; jobs are started again")
            self.stalled = False
            self._turn_soon()
        if self._sync_timer is None:
            self._sync_timer = self._loop.call_later(SYNC_DELAY, self._sync_later)

    async def sync(self) -> None:
        """Wait until all that was committed is on the disk: it outlives the machine from now on."""
        committed, self._committed = self._committed, {}
        try:
            try:
                await self._loop.run_in_executor(self._syncer, self.journal.sync)
            except RuntimeError:  # the limit of threads is reached; others wait meanwhile, but the answer is right
                self.journal.sync()
        except JournalError:
            for agent, number in committed.items():  # another one, which began later, may have failed as well
                self._committed[agent] = max(number, self._committed.get(agent, 0))
            raise
        # Not sooner: when the machine dies now, agents must not have forgotten what the journal has lost.
        self.executor.acknowledge(committed)

    async def store(self) -> None:
        """Wait until all that has happened so far is on the disk, for as long as there is no room for it."""
        said = ""
        while True:
            self.try_to_commit()
            if not self.stalled:
                try:
                    await self.sync()
                    return
                except JournalError as error:
                    if str(error) != said:
                        said = str(error)
                        log.error("%s It is tried again.", error)
            await asyncio.sleep(RETRY_DELAY)

    def _sync_later(self) -> None:
        self._sync_timer = None
        if self.state.lanes:
            self._turn_soon()  # those who stand behind others may have waited for too long by now
        syncing = asyncio.ensure_future(self.sync())
        self._syncing.add(syncing)
        syncing.add_done_callback(self._synced)

    def _synced(self, syncing: asyncio.Future[None]) -> None:
        self._syncing.discard(syncing)
        error = None if syncing.cancelled() else syncing.exception()
        if isinstance(error, JournalError):
            log.error("%s", error)
        elif error is not None:
            raise error

    async def close(self) -> None:
        """Nothing left pending, and everything in the registry, if it can be written at all. What cannot be written
        yet, agents keep: the next manager gets it from them."""
        self._turn_due = True  # none follows, also when the last commit is the first for which there is room
        for timer in (self._commit_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        if self._syncing:
            await asyncio.wait(self._syncing)
        whole = True
        try:
            self.commit()
        except (JournalError, ReportError) as error:
            log.error("%s This manager ends without it.", error)
            whole = False
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._syncer.shutdown()
        with suppress(ReportError):  # said already
            self.report.close()
        self.journal.close(commit=whole)
