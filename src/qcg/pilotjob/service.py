"""Wires the rooms together: a run from the first line of its log to the last."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob import resume, rundir
from qcg.pilotjob.closing import Closing
from qcg.pilotjob.core.events import CancelAll, NodesLost
from qcg.pilotjob.core.states import State
from qcg.pilotjob.engine import Engine
from qcg.pilotjob.executors.freshness import KeptFresh
from qcg.pilotjob.executors.spare import SpareAgent
from qcg.pilotjob.executors.supervision import Supervision, raise_its_error
from qcg.pilotjob.going_on import ALLOCATION, refuse_elsewhere
from qcg.pilotjob.guard import announce, check_agents, check_free, leave, refresh, withdraw
from qcg.pilotjob.host_cores import HostCores
from qcg.pilotjob.interfaces.file import (
    check_unchanged,
    forget_file,
    is_file_done,
    read_requests,
    remember_file,
    run_requests,
)
from qcg.pilotjob.interfaces.network import NetworkInterface
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.logs import log_to, stop_logging
from qcg.pilotjob.options import Options, Resumption
from qcg.pilotjob.outcome import Ending
from qcg.pilotjob.place import Place, find_place, look_after_agents
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.progress import progress_line
from qcg.pilotjob.runs import in_same_directory
from qcg.pilotjob.wire.contact import ContactError
from qcg.pilotjob.wire.hub import Hub
from qcg.pilotjob.wire.keys import make_keys
from qcg.pilotjob.wire.routing import LOOPBACK
from qcg.pilotjob.wiring import wire

log = logging.getLogger(__name__)

BEAT = 2.0
"""Seconds between two touches of the contact file, by which agents of other machines know that this manager lives."""
BEAT_ALONE = 5.0
"""The same where nobody but clients may look at it."""
LINE = 10.0
"""Seconds between two lines of the log that tell how far the run is, when that has changed."""
PATIENCE = 2.0
"""Seconds for the last words to reach the disk, before it is said that they do not."""
KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL when the service ends."""


class Service:
    """One manager process. `run` returns when everything is over, and nothing is left behind."""

    def __init__(self, options: Options, resumption: Resumption | None = None, spare: SpareAgent | None = None) -> None:
        self.options = options
        self.resumption = resumption
        self._spare = spare
        self.wd = resumption.run_dir.parent if resumption else Path(options.wd).resolve()
        self.on_ready: Callable[[Pilot], None] = lambda pilot: None
        """For displays: called once, before the first request."""
        self._signal = 0
        self._hurry = asyncio.Event()
        self._trouble = ""
        self._begun = False
        self._waits_for_room = False
        self._left = False
        """The run is not over: the agent keeps its jobs, for a manager that resumes it."""

    async def run(self) -> Ending:
        hub = Hub()
        try:
            return await self._run_with(hub)
        finally:
            hub.close()

    async def _run_with(self, hub: Hub) -> Ending:
        if self.resumption:
            run_dir = self.resumption.run_dir
            check_free(run_dir)
            journal = Journal.open(run_dir / FILE_NAME)
            check_agents(run_dir, str(journal.get_meta("instance") or ""))
            before = resume.stored_options(journal)
            self.options = msgspec.structs.replace(before, **self.resumption.changes)
            if self.resumption.anew:
                resume.forget_end(journal)
            if self.options.file_path != before.file_path:
                forget_file(journal)
            elif self.options.file_path and ("file_path" in self.resumption.changes or not is_file_done(journal)):
                check_unchanged(journal, Path(self.options.file_path))
            requests = [] if is_file_done(journal) else self._requests()
            place = find_place(self.options)
            was_in = str(journal.get_meta(ALLOCATION) or "")
            if was_in and place.allocation is None and self.options.nodes is None and self.options.resources == "auto":
                refuse_elsewhere(run_dir, was_in)
            network = self._network(hub, place)
        else:
            requests = self._requests()
            # What is wrong with nodes or ports is told before anything is made.
            place = find_place(self.options)
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
                    return await self._run(hub, cores, network, run_dir, journal, requests)
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
        agents.on_hopeless = self._give_up(pilot)
        closing = Closing(pilot, self.options, place.allocation)
        self._watch_signals(pilot, closing, in_allocation=place.allocation is not None)
        self._watch_defects(pilot, run_dir)
        beating = asyncio.ensure_future(self._beat(engine, run_dir, cores))
        watching = asyncio.ensure_future(closing.watch())
        for task in (beating, watching):
            task.add_done_callback(raise_its_error)
        errors = cut_off = 0
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
            errors = await run_requests(pilot, requests)
            closing.all_read = True
            await self._until_the_end(pilot, closing)
            cut_off = engine.state.unfinished
            if closing.over.is_set() and not (self._left or pilot.ending.is_set()):
                await self._suspend(engine, agents, closing)
            elif not self._left:
                await self._end(engine, agents)
        finally:
            beating.cancel()
            watching.cancel()
            agents.abandon()
            if network is not None:
                await network.close()
            await engine.close()
            self._leave_signals()
            asyncio.get_running_loop().set_exception_handler(None)
        if not self._left:
            withdraw(run_dir)
        else:
            try:
                leave(run_dir)
            except (OSError, ContactError) as error:
                log.error("on other hosts this manager counts as alive for a while: %s", error)
            log.warning("the run is left as it is; continue it with --resume %s", run_dir)
        counts = engine.state.job_counts
        summary = ", ".join(f"{counts[state]} {state.name}" for state in State if counts[state])
        log.info("the end: %s", summary or "no jobs")
        told = pilot.ending.is_set()
        suspended = closing.why if engine.state.suspended and engine.state.unfinished else ""
        return Ending(
            run_dir,
            counts,
            errors,
            cut_off,
            self._trouble,
            self._signal,
            pilot.refusals,
            told,
            continued,
            suspended,
            place.job_id,
            left=self._left and not self._trouble,
        )

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _until_the_end(self, pilot: Pilot, closing: Closing) -> None:
        """A request to finish; or all jobs final, where that was asked for; or nothing more to wait for; or no time."""
        if not (self.options.net or pilot.end_when_done.is_set()):
            return
        told = asyncio.ensure_future(pilot.ending.wait())
        done = asyncio.ensure_future(self._all_done(pilot))
        over = asyncio.ensure_future(closing.over.wait())
        await asyncio.wait({done, told, over}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (done, told, over):
            waiting.cancel()

    async def _all_done(self, pilot: Pilot) -> None:
        await pilot.end_when_done.wait()
        await pilot.engine.all_done.wait()

    async def _suspend(self, engine: Engine, agents: Supervision, closing: Closing) -> None:
        """No process is left, and what is not final waits for another manager."""
        runs = engine.state.executing
        ended = "nothing runs" if not runs else "1 run is ended" if runs == 1 else f"{runs} runs are ended"
        engine.notice(f"{closing.why}; {ended}, and what is left waits for --resume")
        await closing.carry_out(agents)
        await self._stored(engine)

    async def _end(self, engine: Engine, agents: Supervision) -> None:
        """Nothing is left: no job that is not final, no process."""
        # First: an agent that has gone cannot tell again what was not written.
        if not await self._stored(engine):
            return
        left = engine.state.unfinished
        if left:
            log.warning("the service ends before %d jobs have ended; they are cancelled", left)
            engine.dispatch(CancelAll(self._trouble or "the service ended before the job did"))
        hurried = asyncio.ensure_future(self._hurry.wait())
        ending = asyncio.ensure_future(agents.end(KILL_GRACE))
        await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            engine.executor.tell_to_exit(0.0)
        hurried.cancel()
        await ending
        if engine.state.unfinished:
            nodes = [spec.name for spec in engine.state.nodes]
            engine.dispatch(NodesLost(nodes, "the agent ended without telling what became of the job"))
        await self._stored(engine)

    async def _stored(self, engine: Engine) -> bool:
        """Wait until everything is on the disk. False when somebody does not want to wait for room on it."""
        storing = asyncio.ensure_future(engine.store())
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({storing}, timeout=PATIENCE)
        if not storing.done():
            self._waits_for_room = True
            left = "a second signal leaves" if self._signal else "two signals leave"
            engine.notice(f"{_why_not_written(engine)} The end waits for that; {left} the run as it is, to be resumed")
            await asyncio.wait({storing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        self._waits_for_room = False
        self._left = self._left or not storing.done()
        storing.cancel()
        return not self._left

    def _give_up(self, pilot: Pilot) -> Callable[[str], None]:
        def give_up(reason: str) -> None:
            log.critical("%s", reason)
            self._trouble = reason
            self._hurry.set()
            pilot.ending.set()

        return give_up

    def _watch_defects(self, pilot: Pilot, run_dir: Path) -> None:
        """What nobody has thought of must not end in silence: it is told, and the run is left to be resumed."""
        give_up = self._give_up(pilot)

        def leave() -> None:
            self._left = True
            give_up(f"an unexpected error, told in {run_dir / 'service.log'}; go on with --resume {run_dir}")

        def told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            log.critical("unexpected: %s", context["message"], exc_info=context.get("exception"))
            if "handle" in context and not self._left:  # in a callback, so that nobody else hears of it
                leave()

        pilot.engine.on_broken = leave
        asyncio.get_running_loop().set_exception_handler(told)

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

    def _watch_signals(self, pilot: Pilot, closing: Closing, *, in_allocation: bool) -> None:
        def told(number: int) -> None:
            name = signal.Signals(number).name
            if in_allocation and number == signal.SIGTERM and not self._signal:
                closing.now("the allocation ends (SIGTERM)")  # which may be told more than once
                return
            if self._signal:
                self._hurry.set()
            pilot.engine.notice(f"{name}: {self._what_follows(pilot.engine)}")
            self._signal = number
            pilot.ending.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told, number)

    def _what_follows(self, engine: Engine) -> str:
        """From a signal, in words."""
        engine.try_to_commit()  # a disk may be full, and nobody has noticed
        waits = engine.stalled or self._waits_for_room
        if self._signal:
            return "the run is left as it is, to be resumed" if waits else "everything is ended at once"
        left = engine.state.unfinished
        jobs = "1 job that has not ended is" if left == 1 else f"{left} jobs that have not ended are"
        if waits:
            return (
                f"nothing can be written, and the end waits for that: once there is room, {jobs} cancelled, for good;"
                " a second signal leaves the run as it is, to be resumed"
            )
        return (
            f"{jobs} cancelled, for good; running ones have {KILL_GRACE:g} s to end by themselves, or until the next"
            " signal"
        )

    def _leave_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _why_not_written(engine: Engine) -> str:
    try:
        engine.commit()
    except (JournalError, ReportError) as error:
        return str(error)
    return "What is written has not reached the disk yet; should that fail, service.log says why."


def main() -> None:
    """`qcg-pm-service`."""
    from qcg.pilotjob.cli.entry import qcg_pm_service as command

    command()


if __name__ == "__main__":
    main()
