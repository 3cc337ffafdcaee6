"""Wires the rooms together: a run from the first line of its log to the last."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob import resume, rundir
from qcg.pilotjob.cluster.local import local_nodes
from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.events import CancelAll, NodesLost
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.states import State
from qcg.pilotjob.engine import Engine
from qcg.pilotjob.executors.agents import AgentExecutor
from qcg.pilotjob.executors.channel import Keys
from qcg.pilotjob.executors.local import NAME, LocalAgent
from qcg.pilotjob.guard import announce, check_agents, check_free, refresh, withdraw
from qcg.pilotjob.interfaces.file import forget_file, is_file_done, read_requests, run_requests
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.launch.site import Site
from qcg.pilotjob.logs import log_to, stop_logging
from qcg.pilotjob.options import Options, Resumption, UsageError
from qcg.pilotjob.report.progress import progress_line
from qcg.pilotjob.report.writer import ReportWriter

log = logging.getLogger(__name__)

BEAT = 2.0
BEATS_A_LINE = 5
"""So often the log tells how far the run is, when that has changed."""
PATIENCE = 2.0
"""Seconds for the last words to reach the disk, before it is said that they do not."""
KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL when the service ends."""


class Ending(msgspec.Struct):
    """How a run ended, for the exit code and the closing table."""

    run_dir: Path
    counts: list[int]
    """Of jobs, by state."""
    request_errors: int
    cut_off: int
    """Jobs that were not final when the service ended."""
    trouble: str
    """Why the service could not go on, when it could not."""
    signal: int
    refusals: list[str]
    """What was said to requests that were refused."""
    told: bool
    """It ended because it was told to."""

    @property
    def exit_code(self) -> int:
        if self.signal:
            return 128 + self.signal
        if self.trouble:
            return 3
        return 0 if self.counts[State.SUCCEED] == sum(self.counts) and not self.request_errors else 1


class Service:
    """One manager process. `run` returns when everything is over, and nothing is left behind."""

    def __init__(self, options: Options, resumption: Resumption | None = None) -> None:
        self.options = options
        self.resumption = resumption
        self.wd = resumption.run_dir.parent if resumption else Path(options.wd).resolve()
        self.on_ready: Callable[[Pilot], None] = lambda pilot: None
        """For displays: called once, before the first request."""
        self._signal = 0
        self._hurry = asyncio.Event()
        self._trouble = ""
        self._left = False
        """The run is not over: the agent keeps its jobs, for a manager that resumes it."""

    async def run(self) -> Ending:
        if self.resumption:
            run_dir = self.resumption.run_dir
            check_free(run_dir)
            check_agents(run_dir)
            journal = Journal.open(run_dir / FILE_NAME)
            before = resume.stored_options(journal)
            self.options = msgspec.structs.replace(before, **self.resumption.changes)
            if self.options.file_path != before.file_path:
                forget_file(journal)
            requests = [] if is_file_done(journal) else self._requests()
        else:
            requests = self._requests()
            local_nodes(self.options.nodes, os.environ)  # what is wrong with them is told before anything is made
            run_dir = rundir.create(self.wd, self.options.id)
            journal = Journal.create(run_dir / FILE_NAME)
        with _writing_to(run_dir):
            handler = log_to(run_dir / "service.log", self.options.log)
        try:
            rundir.link(self.wd, run_dir / "service.log", "service.log")
            log.info("%s %s in %s", "resuming" if self.resumption else "starting", run_dir.name, self.wd)
            return await self._run(run_dir, journal, requests)
        finally:
            stop_logging(handler)

    def _requests(self) -> list[msgspec.Raw]:
        return read_requests(Path(self.options.file_path)) if self.options.file_path else []

    async def _run(self, run_dir: Path, journal: Journal, requests: list[msgspec.Raw]) -> Ending:
        pilot = self._wire(run_dir, journal)
        engine = pilot.engine
        agent = LocalAgent(engine.executor, run_dir, self.options.linger)
        agent.on_hopeless = self._give_up(pilot)
        self._watch_signals(pilot)
        self._watch_defects(pilot, run_dir)
        beating = asyncio.ensure_future(self._beat(engine, run_dir))
        beating.add_done_callback(_raise_its_error)
        errors = cut_off = 0
        try:
            keys = Keys()
            with _writing_to(run_dir):
                announce(run_dir, keys, engine.executor.open(keys, "tcp://127.0.0.1:*"))
            agent.start()
            self.on_ready(pilot)
            errors = await run_requests(pilot, requests)
            await self._until_the_end(pilot)
            cut_off = engine.state.unfinished
            if not self._left:
                await self._end(engine, agent)
        finally:
            beating.cancel()
            agent.abandon()
            await engine.close()
            engine.executor.close()
            self._leave_signals()
            asyncio.get_running_loop().set_exception_handler(None)
        withdraw(run_dir)
        if self._left:
            log.warning("the run is left as it is; continue it with --resume %s", run_dir)
        counts = engine.state.job_counts
        summary = ", ".join(f"{counts[state]} {state.name}" for state in State if counts[state])
        log.info("the end: %s", summary or "no jobs")
        told = pilot.ending.is_set()
        return Ending(run_dir, counts, errors, cut_off, self._trouble, self._signal, pilot.refusals, told)

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _wire(self, run_dir: Path, journal: Journal) -> Pilot:
        options = self.options
        nodes = local_nodes(options.nodes, os.environ)
        specs = _without_system_core(nodes.specs) if options.system_core else nodes.specs
        site = Site(
            root_wd=str(self.wd),
            instance=str(journal.get_meta("instance") or uuid.uuid4().hex),
            slurm_environment="slurm" in options.envschema,
            bound_nodes=frozenset(spec.name for spec in specs) if nodes.real else frozenset(),
            hides_gpus="CUDA_VISIBLE_DEVICES" in os.environ,
            threads_chosen="OMP_NUM_THREADS" in os.environ,
        )
        report_path = run_dir / options.report_file
        report = ReportWriter(report_path, options.report_format, keep=int(journal.get_meta("report_size") or 0))
        if options.report_format != "none":
            rundir.link(self.wd, report_path, "jobs.report")
        self._remember(journal, site, specs)
        core = Core(specs, rerun_lost=options.rerun_lost, patience=options.patience)
        engine = Engine(core, journal, report, site)
        engine.executor = AgentExecutor(engine, {NAME: [spec.name for spec in specs]}, journal.acked())
        pilot = Pilot(engine, run_dir.name.removeprefix(rundir.PREFIX), system_cores=int(options.system_core))
        if self.resumption:
            pilot.end_when_done = bool(journal.get_meta("end_when_done"))
            if journal.get_meta("ending"):
                pilot.ending.set()
            engine.take_over(resume.restore(engine.state, journal))
        cores = sum(len(spec.cores) for spec in specs)
        log.info("%d nodes with %d cores: %s", len(specs), cores, ", ".join(spec.name for spec in specs[:20]))
        return pilot

    def _remember(self, journal: Journal, site: Site, specs: list[NodeSpec]) -> None:
        """What a resumed manager and the report want to know."""
        resources = [{"name": spec.name, "cores": len(spec.cores)} for spec in specs]
        journal.set_meta("instance", site.instance)
        journal.set_meta("options", msgspec.json.encode(self.options).decode())
        journal.set_meta("resources", msgspec.json.encode(resources).decode())
        journal.commit()
        # Also what an earlier manager had no time to sync: agents forget what they are told is on disk.
        journal.sync()

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _until_the_end(self, pilot: Pilot) -> None:
        """A request to finish; or all jobs final, where that was asked for; or nothing more to wait for."""
        if pilot.ending.is_set() or not (pilot.end_when_done or self.options.wait):
            return
        done = asyncio.ensure_future(pilot.engine.all_done.wait())
        told = asyncio.ensure_future(pilot.ending.wait())
        await asyncio.wait({done, told}, return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        told.cancel()

    async def _end(self, engine: Engine, agent: LocalAgent) -> None:
        """Nothing is left: no job that is not final, no process."""
        # First: an agent that has gone cannot tell again what was not written.
        if not await self._stored(engine):
            return
        left = engine.state.unfinished
        if left:
            log.warning("the service ends before %d jobs have ended; they are cancelled", left)
            engine.dispatch(CancelAll(self._trouble or "the service ended before the job did"))
        hurried = asyncio.ensure_future(self._hurry.wait())
        ending = asyncio.ensure_future(agent.end(KILL_GRACE))
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
            log.warning("the end waits until all is written; a second signal leaves the run as it is, to be resumed")
            await asyncio.wait({storing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
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

    async def _beat(self, engine: Engine, run_dir: Path) -> None:
        told = ""
        for beat in itertools.count(1):
            await asyncio.sleep(BEAT)
            engine.executor.beat()
            try:
                refresh(run_dir)
            except OSError as error:
                log.error("the contact file cannot be kept fresh: %s; agents that lose this manager miss it", error)
            if beat % BEATS_A_LINE == 0 and told != (line := progress_line(engine.state)):
                log.info("%s", line)
                told = line

    def _watch_signals(self, pilot: Pilot) -> None:
        def told(number: int) -> None:
            if self._signal:
                self._hurry.set()
            log.warning("%s: the service ends%s", signal.Signals(number).name, " at once" if self._signal else "")
            self._signal = number
            pilot.ending.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told, number)

    def _leave_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def main() -> None:
    """`qcg-pm-service`."""
    from qcg.pilotjob.cli.service import main as command

    command()


def _raise_its_error(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.result()


@contextmanager
def _writing_to(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"the run directory {run_dir} cannot be written: {os.strerror(error.errno or 0)}; make room, and try again"
        ) from None


def _without_system_core(specs: list[NodeSpec]) -> list[NodeSpec]:
    """The first core of the first node is the manager's own."""
    first = specs[0]
    return [msgspec.structs.replace(first, cores=first.cores[1:]), *specs[1:]]


if __name__ == "__main__":
    main()
