"""One manager process, from the first line of its log to the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from qcg.pilotjob.common.clock import Clock
from qcg.pilotjob.common.logs import log_to, stop_logging
from qcg.pilotjob.common.options import Options, Resumption
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.hold import count_held
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.executors.contact_keeper import ContactKeeper
from qcg.pilotjob.executors.hang_safe import reraise_task_error
from qcg.pilotjob.executors.prestart import PrestartedAgent
from qcg.pilotjob.manager.bootstrap import assemble
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.host_cores import HostCores
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.ports import FileProgress, Interfaces
from qcg.pilotjob.manager.prepare import PreparedRun, prepare_new, prepare_resumed
from qcg.pilotjob.manager.run_result import ManagerEnd, RunResult, count_jobs
from qcg.pilotjob.manager.shutdown import ShutdownSequence
from qcg.pilotjob.manager.signals import EarlySignals, SignalWatch, give_up_on_unexpected_errors
from qcg.pilotjob.report.progress import progress_line
from qcg.pilotjob.runs import rundir
from qcg.pilotjob.runs.guard import announce, mark_ended, refresh, remove_contact
from qcg.pilotjob.runs.messages import shared_directory_notices
from qcg.pilotjob.wire.contact import ContactError
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.timing import CONTACT_INTERVAL

if TYPE_CHECKING:
    from qcg.pilotjob.manager.metrics_file import MetricsFile
    from qcg.pilotjob.manager.run_notifications import RunNotifications

log = logging.getLogger(__name__)

LOCAL_CONTACT_INTERVAL = 5.0
"""Seconds between two touches of the contact file where all agents are on this machine: only clients read it."""
PROGRESS_INTERVAL = 10.0
"""Seconds between two progress lines in the log, where the progress has changed."""


class Service:
    """Runs one manager. When `run` returns, no process is left behind, unless the run is left as it is."""

    def __init__(
        self,
        options: Options,
        resumption: Resumption | None = None,
        *,
        interfaces: Interfaces,
        prestarted: PrestartedAgent | None = None,
        on_ready: Callable[[Manager], None] = lambda manager: None,
        followed: bool = False,
    ) -> None:
        """`on_ready`: called once, before the first request, for displays. `followed`: another allocation continues
        with the jobs that are left."""
        self._options = options
        self._resumption = resumption
        self._interfaces = interfaces
        self._prestarted = prestarted
        self._on_ready = on_ready
        self._followed = followed
        self._notifications: RunNotifications | None = None
        self._is_reachable = False

    async def run(self) -> RunResult:
        hub = Hub()
        try:
            early_signals = EarlySignals()
            try:
                return await self._run(hub, early_signals)
            finally:
                early_signals.end()
        finally:
            hub.close()

    async def _run(self, hub: Hub, early_signals: EarlySignals) -> RunResult:
        if self._resumption is not None:
            prepared = prepare_resumed(self._resumption, self._interfaces, hub)
        else:
            prepared = prepare_new(self._options, self._interfaces, hub)
        try:
            with _service_log(prepared):
                cores = HostCores(prepared.placement, prepared.options, prepared.run_dir)
                prepared = msgspec.structs.replace(prepared, placement=cores.placement)
                try:
                    return await self._manage(prepared, cores, hub, early_signals)
                finally:
                    cores.release()
                    if self._notifications is not None:
                        self._notifications.abandon()
        except BaseException:
            prepared.journal.close(commit=False)
            if not self._is_reachable:
                prepared.discard()
            raise

    async def _rerun(self, manager: Manager, prepared: PreparedRun) -> None:
        """Run jobs again with new descriptions, before anything is started. The run is left as it was if they are
        refused."""
        from qcg.pilotjob.manager.rerun import any_of, describe_rerun

        try:
            data = await self._interfaces.rerun(manager, prepared.rerun, prepared.replacements)
        except BaseException:
            await manager.engine.close()
            raise
        states = any_of([State[name.upper()] for name in prepared.rerun])
        nothing = f"Nothing runs again: no job or iteration that is {states} can run again"
        manager.add_start_notice(describe_rerun(data["rerun"]) if data["rerun"] else nothing)
        for warning in data.get("warnings", ()):
            manager.add_start_notice(f"Warning: {warning}.")

    async def _manage(
        self, prepared: PreparedRun, cores: HostCores, hub: Hub, early_signals: EarlySignals
    ) -> RunResult:
        run_dir, network = prepared.run_dir, prepared.network
        contact = ContactKeeper(partial(refresh, run_dir))
        manager = assemble(prepared, hub, contact, cores.set_agent, self._prestarted)
        engine = manager.engine
        if prepared.replacements:
            await self._rerun(manager, prepared)
        rundir.link(prepared.wd, run_dir / rundir.LOG_NAME, rundir.LOG_NAME)
        is_continued = prepared.is_resumed and prepared.requests.is_empty and not prepared.rerun
        continued = engine.state.unfinished if is_continued else None
        if network is not None:
            network.serve(manager)
        work = self._begin(prepared, manager, early_signals)
        background = self._begin_background(work, contact, cores)
        requests = FileProgress()
        unfinished = 0
        try:
            self._announce(prepared, cores, manager)
            engine.executor.start()
            self._on_ready(manager)
            requests = await prepared.requests.carry_out(manager)
            work.deadline.requests_read()
            await self._wait_for_end(manager, prepared)
            unfinished = engine.state.unfinished
            await work.shutdown.carry_out()
            if work.metrics is not None:
                await work.metrics.take_last_summary()
        finally:
            for task in background:
                task.cancel()
            engine.executor.close()
            if network is not None:
                await network.close()
            await engine.close()
            work.signals.end()
            asyncio.get_running_loop().set_exception_handler(None)
        _withdraw_contact(run_dir, run_is_left=work.shutdown.run_is_left)
        result = work.result(requests, unfinished, continued)
        result.log()
        if work.metrics is not None:
            await work.metrics.finish()
        if self._notifications is not None:
            await self._notifications.ended(result, work.signals.hurry, followed=self._followed)
        return result

    def _begin(self, prepared: PreparedRun, manager: Manager, early_signals: EarlySignals) -> _ManagerAtWork:
        """Watch for everything that ends the manager."""
        options, placement = prepared.options, prepared.placement
        deadline = ManagerDeadline(manager, options, placement.allocation, Clock())
        shutdown = ShutdownSequence(manager.engine, manager.shutdown, deadline)
        signals = SignalWatch(
            early_signals, manager.engine, manager.shutdown, shutdown, deadline, in_allocation=bool(placement.job_id)
        )
        signals.begin()
        give_up_on_unexpected_errors(manager.shutdown, prepared.run_dir)
        metrics = None
        if options.metrics_file:
            from qcg.pilotjob.manager.metrics_file import MetricsFile

            metrics = MetricsFile(options.metrics_file, manager.summaries.make)
        return _ManagerAtWork(prepared, manager, deadline, shutdown, signals, metrics)

    def _begin_background(
        self, work: _ManagerAtWork, contact: ContactKeeper, cores: HostCores
    ) -> list[asyncio.Future[None]]:
        """Start the tasks that go on until the engine is closed."""
        options = work.prepared.options
        interval = LOCAL_CONTACT_INTERVAL if work.prepared.placement.allocation is None else CONTACT_INTERVAL
        tasks = [_refresh(contact, cores, interval), _log_progress(work.manager.engine.state), work.deadline.watch()]
        if options.notify:
            from qcg.pilotjob.manager.run_notifications import RunNotifications

            self._notifications = RunNotifications(work.manager, options, Clock())
            tasks.append(self._notifications.watch())
        if work.metrics is not None:
            tasks.append(work.metrics.keep_up_to_date())
        return [_in_background(task) for task in tasks]

    def _announce(self, prepared: PreparedRun, cores: HostCores, manager: Manager) -> None:
        """Write the contact file, so that agents and clients find this manager."""
        with rundir.writing_to(prepared.run_dir):
            agents = manager.engine.executor.open()
            announce(prepared.run_dir, agents, prepared.network.contact if prepared.network is not None else None)
        self._is_reachable = True
        for notice in [*cores.notices, *shared_directory_notices(prepared.run_dir)]:
            manager.add_start_notice(notice)

    async def _wait_for_end(self, manager: Manager, prepared: PreparedRun) -> None:
        """Wait for a shutdown request, or for the last job where the manager is to end then. A manager that has read no
        requests and serves no clients runs for the remaining jobs."""
        serves = prepared.options.net
        if prepared.requests.is_empty and not serves:
            manager.end_when_done.set()
        if not (serves or manager.end_when_done.is_set()):
            manager.shutdown.request(Cause.REQUESTS_READ, "the request file has no finishAfterAllTasksDone")
            return
        requested = asyncio.ensure_future(manager.shutdown.wait())
        done = asyncio.ensure_future(_all_done(manager))
        await asyncio.wait({done, requested}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (done, requested):
            waiting.cancel()
        manager.shutdown.request(Cause.DONE, "every job had ended")


class _ManagerAtWork(msgspec.Struct, frozen=True):
    """A manager with what ends it."""

    prepared: PreparedRun
    manager: Manager
    deadline: ManagerDeadline
    shutdown: ShutdownSequence
    signals: SignalWatch
    metrics: MetricsFile | None

    def result(self, requests: FileProgress, unfinished: int, continued: int | None) -> RunResult:
        """The result of the run after the shutdown. `unfinished`, `continued`: see `RunResult`."""
        state, placement, options = self.manager.engine.state, self.prepared.placement, self.prepared.options
        run_is_left = self.shutdown.run_is_left
        return RunResult(
            run_dir=self.prepared.run_dir,
            counts=count_jobs(state, run_is_left=run_is_left),
            end=ManagerEnd.of(self.manager.shutdown, self.signals.first, run_is_left=run_is_left),
            requests=requests,
            unfinished=unfinished,
            held=count_held(state),
            continued=continued,
            allocation=placement.job_id,
            batch_system="" if placement.allocation is None else placement.allocation.ref.system,
            serves=options.net and not options.wait,
        )


@contextmanager
def _service_log(prepared: PreparedRun) -> Iterator[None]:
    with rundir.writing_to(prepared.run_dir):
        handler = log_to(prepared.run_dir / rundir.LOG_NAME, prepared.options.log)
    try:
        log.info("%s %s in %s", "resuming" if prepared.is_resumed else "starting", prepared.run_dir.name, prepared.wd)
        yield
    finally:
        stop_logging(handler)


def _in_background(work: Coroutine[None, None, None]) -> asyncio.Future[None]:
    task = asyncio.ensure_future(work)
    task.add_done_callback(reraise_task_error)
    return task


async def _refresh(contact: ContactKeeper, cores: HostCores, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        contact.touch()
        cores.refresh()


async def _log_progress(state: CoreState) -> None:
    logged = ""
    while True:
        await asyncio.sleep(PROGRESS_INTERVAL)
        if logged != (line := progress_line(state)):
            log.info("%s", line)
            logged = line


async def _all_done(manager: Manager) -> None:
    await manager.end_when_done.wait()
    await manager.engine.all_done.wait()


def _withdraw_contact(run_dir: Path, *, run_is_left: bool) -> None:
    try:
        if run_is_left:
            mark_ended(run_dir)
        else:
            remove_contact(run_dir)
    except (OSError, ContactError) as error:
        log.error("on other hosts this manager counts as alive for a while: %s", error)
    if run_is_left:
        log.warning("the run is left as it is; continue it with --resume %s", run_dir)
