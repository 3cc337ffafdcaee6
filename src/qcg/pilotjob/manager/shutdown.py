"""The shutdown sequence of a manager: settle its jobs, end its attempts and agents, write everything."""

from __future__ import annotations

import asyncio
import logging

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.events import Deadline, NodesLost, ShutDown
from qcg.pilotjob.core.shutdown import Cause, Disposition, Shutdown, decide
from qcg.pilotjob.host.records import EndReason
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.manager.deadline import ManagerDeadline
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest
from qcg.pilotjob.report.errors import ReportError

log = logging.getLogger(__name__)

DISK_TIMEOUT = 2.0
"""Seconds for the last records to reach the disk, before the manager reports that they do not."""
EXIT_TIMEOUT = 4.0
"""Seconds that agents have to exit in addition to the grace period of their jobs, when the allocation ends."""


class ShutdownSequence:
    """Ends the attempts and the agents of one manager, as its shutdown request wants it."""

    def __init__(self, engine: Engine, request: ShutdownRequest, deadline: ManagerDeadline) -> None:
        self._engine = engine
        self._request = request
        self._deadline = deadline
        self.waits_for_disk = False
        """The shutdown waits until records can be written."""
        self.run_is_left = False
        """Nothing was settled: agents keep their jobs for a manager that resumes the run."""

    async def carry_out(self) -> None:
        """Returns when no process is left, unless the run is left as it is."""
        assert self._request.cause is not None
        cause = self._request.cause
        grace = self._deadline.kill_grace if cause is Cause.TIME else None
        shutdown = decide(cause, grace=grace, urgent=self._request.urgent.is_set())
        if shutdown.disposition is Disposition.LEAVE:
            self.run_is_left = True
            return
        self._engine.dispatch(Deadline(0.0))  # a job that waits now stays QUEUED
        # An agent that has ended cannot repeat records that were not written. The end of an allocation does not wait
        # for that.
        if cause is not Cause.TIME and not await self._stored():
            return
        self._settle_jobs(shutdown)
        # An attempt that was not killed on request must not count as cancelled.
        reason = EndReason.CANCEL if shutdown.disposition is Disposition.CANCEL_ALL else EndReason.CLOSED
        ends_with_allocation = cause is Cause.TIME and self._deadline.is_end_of_allocation
        timeout = shutdown.grace + EXIT_TIMEOUT if ends_with_allocation else None
        await self._end_agents(shutdown.grace, reason, timeout)
        if self._engine.state.attempts:
            self._settle_unknown_ends(ends_with_allocation=ends_with_allocation)
        await self._stored()

    def _settle_unknown_ends(self, *, ends_with_allocation: bool) -> None:
        """Settle attempts whose end no agent has reported. The end may be in a ledger, or the job may still run, so the
        next manager asks the agents, unless they have ended with the allocation."""
        engine = self._engine
        log.warning("the end of %d attempts is not known", len(engine.state.attempts))
        if ends_with_allocation:
            nodes = [node.spec.name for node in engine.state.pool.local.nodes]
            engine.dispatch(NodesLost(nodes, "the agent ended without a record of the end of this job"))

    def _settle_jobs(self, shutdown: Shutdown) -> None:
        engine = self._engine
        unfinished, attempts = engine.state.unfinished, engine.state.executing
        engine.dispatch(ShutDown(shutdown.disposition, self._request.reason))
        # Before any message to an agent: after a crash from here on, the next manager knows the decision.
        engine.commits.try_to_commit()
        engine.executor.flush()
        if unfinished:
            running = (
                "no attempt runs"
                if not attempts
                else f"{pluralize(attempts, 'running attempt is', 'running attempts are')} ended"
            )
            sentence = f"{self._request.reason}; {running}, {_describe_effects(shutdown.disposition)}"
            # On a signal, the user has already read the consequences.
            (log.info if shutdown.cause is Cause.SIGNAL else engine.notice)(sentence)

    async def _end_agents(self, grace: float, reason: str, timeout: float | None) -> None:
        """`timeout`: seconds after which the allocation ends them."""
        ending = asyncio.ensure_future(self._engine.executor.shut_down(grace, reason))
        urgent = asyncio.ensure_future(self._request.urgent.wait())
        await asyncio.wait({ending, urgent}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if urgent.done() and not ending.done():
            self._engine.executor.hurry()
            await asyncio.wait({ending}, timeout=timeout)
        urgent.cancel()
        if ending.done():
            ending.result()
        else:
            log.warning("some agents have not ended yet; they and their jobs end with the allocation")
            ending.cancel()

    async def _stored(self) -> bool:
        """Wait until everything is on the disk. False when the run is left as it is instead: a second signal came while
        nothing could be written, or writing failed with an unexpected error."""
        engine = self._engine
        storing = asyncio.ensure_future(engine.commits.store())
        urgent = asyncio.ensure_future(self._request.urgent.wait())
        await asyncio.wait({storing}, timeout=DISK_TIMEOUT)
        if not storing.done():
            self.waits_for_disk = True
            signals = "a second signal leaves" if self._request.cause is Cause.SIGNAL else "two signals leave"
            why = why_not_written(engine)
            engine.notice(f"{why} The end waits for that; {signals} the run as it is, to be resumed")
            await asyncio.wait({storing, urgent}, return_when=asyncio.FIRST_COMPLETED)
        urgent.cancel()
        self.waits_for_disk = False
        if not storing.done():
            storing.cancel()
            self.run_is_left = True
        elif (error := storing.exception()) is not None:
            log.critical("the last records could not be written", exc_info=error)
            engine.commits.stop_writing()
            self._request.give_up_after_defect(engine.journal.path.parent)
            self.run_is_left = True
        return not self.run_is_left


def why_not_written(engine: Engine) -> str:
    try:
        engine.commits.commit()
    except (JournalError, ReportError) as error:
        return str(error)
    return "The last records have not reached the disk yet; service.log reports a failure."


def _describe_effects(disposition: Disposition) -> str:
    if disposition is Disposition.CANCEL_ALL:
        return "and all jobs that have not ended are cancelled"
    if disposition is Disposition.CANCEL_RUNNING:
        return "running jobs are cancelled, and waiting jobs are left for --resume"
    return "and jobs that have not ended are left for --resume"
