"""Submissions that are on disk before they are answered, and taken back when they cannot be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qcg.pilotjob.core import events
from qcg.pilotjob.core.job_states import FAILED
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.manager.commits import Counted

if TYPE_CHECKING:
    from qcg.pilotjob.manager.engine import Engine


class Submissions:
    def __init__(self, engine: Engine, schedule: Callable[[], None]) -> None:
        """`schedule`: called when a scheduling pass may come to another result."""
        self._engine = engine
        self._schedule = schedule
        self._unsynced = 0
        """Number of submissions that are committed and being synced."""
        self._refused: list[Job] = []
        """Jobs of refused submissions that have not ended yet."""

    async def submit(self, jobs: list[JobDescription], counted: Counted | None) -> dict[str, Any]:
        """The data of the reply. Its `failed` has, by name, why jobs can never run."""
        engine = self._engine
        report_length = engine.report.length
        reply = engine.dispatch(events.Submit(jobs))
        submitted = [engine.state.jobs[name] for name in reply["jobs"]]
        if failed := {job.name: job.message for job in submitted if job.state is FAILED}:
            reply = {**reply, "failed": failed}
        if counted is not None:
            engine.journal.set_metadata(counted.key, counted.after)
        try:
            engine.commits.commit()
        except Exception:  # whatever it is: the client gets an error, so the jobs must not run
            engine.report.drop_beyond(report_length)
            engine.dispatch(events.Withdraw(reply["jobs"]))
            if counted is not None:
                engine.journal.set_metadata(counted.key, counted.before)
            raise
        self._unsynced += 1
        try:
            await engine.commits.sync()
        except JournalError as error:
            self._refuse(submitted, counted)
            if engine.commits.stalled:
                raise JournalError(
                    f"{error} The jobs were cancelled, which could not be written either: should this manager be killed"
                    " before that works, --resume would run them."
                ) from error
            raise
        finally:
            self._unsynced -= 1
            if engine.state.failure_limit.is_reached:
                self._schedule()
        return reply

    @property
    def may_be_refused(self) -> bool:
        """Whether failures may be taken back, because it is open whether a submission can be synced."""
        return self._unsynced > 0

    def remove_refused(self) -> None:
        """Remove those jobs of refused submissions that have ended."""
        refused = self._still_there(self._refused)
        self._refused = [job for job in refused if not job.state.is_final]
        if ended := [job.name for job in refused if job.state.is_final]:
            self._engine.dispatch(events.Remove(ended, refused=True))

    def _refuse(self, jobs: list[Job], counted: Counted | None) -> None:
        """Cancel and remove jobs that were committed and cannot be synced: they may or may not survive a crash."""
        engine = self._engine
        self._refused += jobs
        self._cancel([job for job in self._still_there(jobs) if not job.state.is_final])
        self.remove_refused()
        if counted is not None:
            engine.journal.set_metadata(counted.key, counted.before)
        engine.commits.try_to_commit()

    def _cancel(self, jobs: list[Job]) -> None:
        """Cancel jobs of a refused submission.

        Jobs that no host has started leave no entry in the report. Jobs of other submissions that are omitted as their
        dependents do."""
        engine = self._engine
        report_length = engine.report.length
        engine.dispatch(events.Cancel([job.name for job in jobs]))
        engine.report.drop_jobs_beyond([job.name for job in jobs if job.state.is_final], report_length)

    def _still_there(self, jobs: list[Job]) -> list[Job]:
        """The jobs that were not removed meanwhile; another job may have such a name by now."""
        return [job for job in jobs if self._engine.state.jobs.get(job.name) is job]
