"""The interface from which handlers answer read-only queries about jobs."""

from __future__ import annotations

from typing import Protocol

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.why_left import HeldPrerequisite
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.manager.job_views import JobViews
from qcg.pilotjob.manager.output_tails import OutputTails


class RunView(Protocol):
    """A run with a live manager, or without one: then everything comes from its registry."""

    @property
    def state(self) -> CoreState: ...

    @property
    def views(self) -> JobViews: ...

    @property
    def output_tails(self) -> OutputTails:
        """Reads the last lines of output, within one event loop."""

    @property
    def descriptions(self) -> Descriptions: ...

    @property
    def stalled(self) -> bool:
        """The registry cannot be written at the moment, so no new attempt is started."""

    def was_interrupted(self, job: Job, position: int) -> bool:
        """Whether an attempt of this job or iteration was ended with its manager: it is started again."""

    def held_prerequisite(self, job: Job) -> HeldPrerequisite | None:
        """The prerequisite for which a job of an ended run waits until a held job is released."""

    @property
    def alive(self) -> bool:
        """A manager runs, so jobs that have not ended continue."""
