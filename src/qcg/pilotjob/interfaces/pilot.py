"""The running pilot as requests see it."""

from __future__ import annotations

import asyncio
import uuid
from datetime import datetime

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.metadata import SUBMISSIONS
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.manager.shutdown_request import ShutdownRequest


class Pilot:
    def __init__(self, engine: Engine, run_id: str, *, system_cores: int = 0, cluster_name: str = "local") -> None:
        self.engine = engine
        self.stories = engine.stories
        self.run_id = run_id
        self.started = datetime.now()
        self.system_cores = system_cores
        """Cores kept for the manager itself: they exist, and are always in use."""
        self._cluster_name = cluster_name
        self.interfaces: list[str] = []
        self.publisher = ""
        """Where events are published, if they are."""
        self.shutdown = ShutdownRequest()
        self.end_when_done = asyncio.Event()
        """Somebody has asked for the end after all jobs are final."""
        self.start_notices: list[str] = []
        """What the user is told when the run begins."""
        self.refusals: list[str] = []
        """What was said to requests of the file that were refused."""
        self._requests = engine.journal.metadata(SUBMISSIONS)

    @property
    def state(self) -> CoreState:
        return self.engine.state

    @property
    def descriptions(self) -> Descriptions:
        return self.engine.descriptions

    @property
    def stalled(self) -> bool:
        return self.engine.stalled

    @property
    def alive(self) -> bool:
        return True

    def was_interrupted(self, job: Job, position: int) -> bool:
        """It waits again like any other one."""
        return False

    def arrival(self) -> SubmissionContext:
        """What a submission that arrives now tells its variables."""
        self._requests += 1
        self.engine.journal.set_metadata(SUBMISSIONS, self._requests)
        return SubmissionContext(self._requests, datetime.now(), self._cluster_name, uuid.uuid4().hex)
