"""Wires the rooms together: a run from the first line of its log to the last."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.logs import log_to, stop_logging
from qcg.pilotjob.common.options import Options, Resumption
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.executors.contact_keeper import KeptFresh
from qcg.pilotjob.executors.prestart import SpareAgent
from qcg.pilotjob.executors.supervision import raise_its_error
from qcg.pilotjob.interfaces.file import (
    FileProgress,
    check_unchanged,
    forget_file,
    is_file_done,
    read_requests,
    remember_file,
    run_requests,
)
from qcg.pilotjob.interfaces.network import NetworkInterface
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import INSTANCE, NODES_OF_ALLOCATION
from qcg.pilotjob.manager import resume
from qcg.pilotjob.manager.bootstrap import wire
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.host_cores import HostCores
from qcg.pilotjob.manager.placement import Place, find_place, hosts_of_file, look_after_agents
from qcg.pilotjob.manager.run_result import Ending
from qcg.pilotjob.manager.shutdown import ShutdownSequence
from qcg.pilotjob.manager.signals import EarlySignals, SignalWatch
from qcg.pilotjob.report.progress import progress_line
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.runs.discovery import in_same_directory
from qcg.pilotjob.runs.guard import announce, check_agents, check_free, leave, refresh, withdraw
from qcg.pilotjob.runs.machine_check import check_connections
from qcg.pilotjob.runs.resume_hint import refuse_elsewhere
from qcg.pilotjob.wire.contact import ContactError
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.keys import make_keys
from qcg.pilotjob.wire.routing import LOOPBACK

log = logging.getLogger(__name__)

BEAT = 2.0
"""Seconds between two touches of the contact file, by which agents of other machines know that this manager lives."""
BEAT_ALONE = 5.0
"""The same where nobody but clients may look at it."""
LINE = 10.0
"""Seconds between two lines of the log that tell how far the run is, when that has changed."""


class Service:
    """One manager process. `run` returns when everything is over, and nothing is left behind."""

    def __init__(self, options: Options, resumption: Resumption | None = None, spare: SpareAgent | None = None) -> None:
        self.options = options
        self.resumption = resumption
        self._spare = spare
        self.wd = resumption.run_dir.parent if resumption else Path(options.wd).resolve()
        self.on_ready: Callable[[Pilot], None] = lambda pilot: None
        """For displays: called once, before the first request."""
        self._begun = False

    async def run(self) -> Ending:
        hub = Hub()
        try:
            return await self._run_with(hub)
        finally:
            hub.close()

    async def _run_with(self, hub: Hub) -> Ending:
        early_signals = EarlySignals()
        try:
            return await self._prepare_and_run(hub, early_signals)
        finally:
            early_signals.end()

    async def _prepare_and_run(self, hub: Hub, early_signals: EarlySignals) -> Ending:
        if self.resumption:
            run_dir = self.resumption.run_dir
            check_free(run_dir)
            journal = Journal.open(run_dir / FILE_NAME)
            before = resume.stored_options(journal)
            self.options = msgspec.structs.replace(before, **self.resumption.changes)
            check_agents(run_dir, journal.metadata(INSTANCE), hosts_of_file(self.options))
            resume.forget_end(journal, when_done=self.resumption.anew)
            if self.options.file_path != before.file_path:
                forget_file(journal)
            elif self.options.file_path and ("file_path" in self.resumption.changes or not is_file_done(journal)):
                check_unchanged(journal, Path(self.options.file_path))
            requests = [] if is_file_done(journal) else self._requests()
            place = find_place(self.options)
            was_in = journal.metadata(NODES_OF_ALLOCATION)
            if was_in and place.allocation is None and self.options.nodes is None and self.options.resources == "auto":
                refuse_elsewhere(run_dir, was_in)
            check_connections(place.address)
            network = self._network(hub, place)
        else:
            requests = self._requests()
            # What is wrong with nodes or ports is told before anything is made.
            place = find_place(self.options)
            check_connections(place.address)
            network = self._network(hub, place)
            run_dir = rundir.create(self.wd, self.options.id)
            with self._discarded_on_failure(run_dir):
                journal = Journal.create(run_dir / FILE_NAME)
        with self._discarded_on_failure(run_dir):
            handler: logging.Handler | None = None
            try:
                with rundir.writing_to(run_dir):
                    handler = log_to(run_dir / "service.log", self.options.log)
                log.info("%s %s in %s", "resuming" if self.resumption else "starting", run_dir.name, self.wd)
                cores = HostCores(place, self.options, run_dir)
                try:
                    return await self._run(hub, early_signals, cores, network, run_dir, journal, requests)
                finally:
                    cores.release()
            except BaseException:
                journal.close(commit=False)
                raise
            finally:
                if handler is not None:
                    stop_logging(handler)

    @contextmanager
    def _discarded_on_failure(self, run_dir: Path) -> Iterator[None]:
        """Remove the directory of a new run that fails before its manager can be reached."""
        try:
            yield
        except BaseException:
            if not (self.resumption or self._begun):
                rundir.discard(self.wd, run_dir)
            raise

    def _requests(self) -> list[msgspec.Raw]:
        return read_requests(Path(self.options.file_path)) if self.options.file_path else []

    def _network(self, hub: Hub, place: Place) -> NetworkInterface | None:
        if not self.options.net:
            return None
        # Without keys, only those on this host may get in.
        return NetworkInterface(hub, self.options, LOOPBACK if self.options.insecure_net else place.address)

    async def _run(
        self,
        hub: Hub,
        early_signals: EarlySignals,
        cores: HostCores,
        network: NetworkInterface | None,
        run_dir: Path,
        journal: Journal,
        requests: list[msgspec.Raw],
    ) -> Ending:
        place = cores.place
        clients = network.contact if network else None
        pilot = wire(self.options, place, self.wd, run_dir, journal, clients, resumed=self.resumption is not None)
        rundir.link(self.wd, run_dir / "service.log", "service.log")
        engine = pilot.engine
        continued = engine.state.unfinished if self.resumption and not requests else None
        if network is not None:
            network.serve(pilot)
        agents = look_after_agents(place, engine, self.options, run_dir, cores.set_agent, self._spare)
        agents.on_hopeless = lambda reason: _give_up(pilot, Cause.NO_AGENT, reason)
        engine.executor.on_incompatible = agents.on_hopeless
        deadline = ManagerDeadline(pilot, self.options, place.allocation, Clock())
        shutdown = ShutdownSequence(engine, pilot.shutdown, deadline)
        in_allocation = bool(place.job_id)
        signals = SignalWatch(early_signals, engine, pilot.shutdown, shutdown, deadline, in_allocation=in_allocation)
        signals.begin()
        _watch_defects(pilot, run_dir)
        beating = asyncio.ensure_future(self._beat(engine, run_dir, cores))
        watching = asyncio.ensure_future(deadline.watch())
        for task in (beating, watching):
            task.add_done_callback(raise_its_error)
        file = FileProgress()
        unfinished = 0
        try:
            with rundir.writing_to(run_dir):
                announce(run_dir, engine.executor.open(hub, make_keys(), f"tcp://{place.address}:*"), clients)
            self._begun = True
            for notice in [*cores.notices, *in_same_directory(run_dir)]:
                log.warning("%s", notice)
                pilot.start_notices.append(notice)
            agents.start()
            self.on_ready(pilot)
            if requests and self.options.file_path:
                remember_file(journal, Path(self.options.file_path))
            file = await run_requests(pilot, requests)
            deadline.all_read = True
            await self._until_the_end(pilot, read=bool(requests))
            unfinished = engine.state.unfinished
            await shutdown.carry_out(agents)
        finally:
            beating.cancel()
            watching.cancel()
            agents.abandon()
            if network is not None:
                await network.close()
            await engine.close()
            signals.end()
            asyncio.get_running_loop().set_exception_handler(None)
        try:
            if shutdown.run_is_left:
                leave(run_dir)
            else:
                withdraw(run_dir)
        except (OSError, ContactError) as error:
            log.error("on other hosts this manager counts as alive for a while: %s", error)
        if shutdown.run_is_left:
            log.warning("the run is left as it is; continue it with --resume %s", run_dir)
        counts = list(engine.state.job_counts)
        if not shutdown.run_is_left:
            # An iterated job of which some iterations have ended waits for its others.
            counts[State.QUEUED] += counts[State.SCHEDULED] + counts[State.EXECUTING]
            counts[State.SCHEDULED] = counts[State.EXECUTING] = 0
        summary = ", ".join(f"{counts[state]} {state.name}" for state in State if counts[state])
        log.info("the end: %s", summary or "no jobs")
        assert pilot.shutdown.cause is not None
        ending = Ending(
            run_dir=run_dir,
            counts=counts,
            cause=pilot.shutdown.cause,
            reason=pilot.shutdown.reason,
            unfinished=unfinished,
            # After `finish` with `cancel` nothing is left: the rest of the file is cancelled like the jobs.
            unread=0 if pilot.shutdown.cause is Cause.FINISH_AND_CANCEL else file.unread,
            request_errors=file.errors,
            refusals=pilot.refusals,
            signal=signals.first,
            continued=continued,
            allocation=place.job_id,
            serves=self.options.net and not self.options.wait,
            unwritten=shutdown.run_is_left and pilot.shutdown.cause not in (Cause.NO_AGENT, Cause.DEFECT),
        )
        if last_line := ending.last_line():
            log.warning("%s", last_line)
        return ending

    async def _until_the_end(self, pilot: Pilot, *, read: bool) -> None:
        """A request to end; or all jobs final, where that was asked for; or the end of the request file. `read`: this
        manager has read requests of it. A manager that has nothing to read is there for the jobs that are left."""
        if not read and not self.options.net:
            pilot.end_when_done.set()
        if not (self.options.net or pilot.end_when_done.is_set()):
            pilot.shutdown.make(Cause.REQUESTS_READ, "the request file has no finishAfterAllTasksDone")
            return
        requested = asyncio.ensure_future(pilot.shutdown.wait())
        done = asyncio.ensure_future(_all_done(pilot))
        await asyncio.wait({done, requested}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (done, requested):
            waiting.cancel()
        pilot.shutdown.make(Cause.DONE, "every job had ended")

    async def _beat(self, engine: Engine, run_dir: Path, cores: HostCores) -> None:
        told = ""
        contact_file = KeptFresh(lambda: refresh(run_dir), engine.executor)
        pause = BEAT if engine.executor.fence else BEAT_ALONE
        for beat in itertools.count(1):
            await asyncio.sleep(pause)
            contact_file.touch()
            cores.refresh()
            if beat * pause % LINE == 0 and told != (line := progress_line(engine.state)):
                log.info("%s", line)
                told = line


async def _all_done(pilot: Pilot) -> None:
    await pilot.end_when_done.wait()
    await pilot.engine.all_done.wait()


def _give_up(pilot: Pilot, cause: Cause, reason: str) -> None:
    log.critical("%s", reason)
    pilot.shutdown.make(cause, reason)


def _watch_defects(pilot: Pilot, run_dir: Path) -> None:
    """An exception that no code handles is logged, and the run is left to be resumed."""

    def give_up() -> None:
        _give_up(pilot, Cause.DEFECT, f"an unexpected error occurred, see {run_dir / 'service.log'}")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.critical("unexpected: %s", context["message"], exc_info=context.get("exception"))
        if "handle" in context and pilot.shutdown.cause is not Cause.DEFECT:  # in a callback: nothing else handles it
            give_up()

    pilot.engine.on_broken = give_up
    asyncio.get_running_loop().set_exception_handler(handle)
