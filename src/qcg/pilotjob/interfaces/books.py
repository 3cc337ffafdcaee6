"""What questions about jobs are answered from."""

from __future__ import annotations

from typing import Protocol

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.manager.job_views import Stories


class Books(Protocol):
    """A running pilot, or what the registry of an ended run says."""

    @property
    def state(self) -> CoreState: ...

    @property
    def stories(self) -> Stories: ...

    @property
    def descriptions(self) -> Descriptions: ...

    @property
    def stalled(self) -> bool:
        """Nothing can be written at the moment, so nothing new is started."""

    def was_interrupted(self, job: Job, position: int) -> bool:
        """Whether it has been started, and ended before its time: it is to be started again."""

    @property
    def alive(self) -> bool:
        """A manager is at work, so that what has not ended may go on."""
