"""The running manager, as handlers of requests and displays use it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.description.variables import SubmissionContext
from qcg.pilotjob.journal.descriptions import Descriptions
from qcg.pilotjob.journal.metadata import SUBMISSIONS
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.rows.run_rows import RunRows
from qcg.pilotjob.wire.contact import ClientsContact

if TYPE_CHECKING:
    from qcg.pilotjob.core.why_left import HeldPrerequisite
    from qcg.pilotjob.manager.live_summary import LiveSummary
    from qcg.pilotjob.manager.output_tails import OutputTails
    from qcg.pilotjob.rows.store import RowFiles

log = logging.getLogger(__name__)


class Manager:
    def __init__(
        self,
        engine: Engine,
        run_id: str,
        *,
        clients: ClientsContact | None = None,
        system_cores: int = 0,
        cluster_name: str = "local",
    ) -> None:
        """`clients`: how clients reach the network interface, where there is one."""
        self.engine = engine
        self.views = engine.views
        self.run_id = run_id
        self._rows = RunRows(engine.site.root_wd, engine.journal.path.parent)
        self.started = datetime.now()
        self.system_cores = system_cores
        """Cores kept for the manager itself: they exist, and are always in use."""
        self._cluster_name = cluster_name
        self.interfaces = ["network"] if clients is not None else []
        self.publisher = clients.publisher if clients is not None else ""
        """The address where events are published; empty without a network interface."""
        self.shutdown = engine.shutdown
        self.end_when_done = asyncio.Event()
        """Set when the manager is to end once all jobs are final."""
        self._start_notices: list[str] = []
        self._requests = engine.journal.metadata(SUBMISSIONS)

    @property
    def row_files(self) -> RowFiles:
        """Reads the parameter files of submissions."""
        return self._rows.files

    @cached_property
    def output_tails(self) -> OutputTails:
        from qcg.pilotjob.manager.output_tails import OutputTails  # here: no run needs it at its start

        return OutputTails()

    @cached_property
    def summaries(self) -> LiveSummary:
        from qcg.pilotjob.manager.live_summary import LiveSummary  # here: no run needs it at its start

        return LiveSummary(self)

    @property
    def start_notices(self) -> Sequence[str]:
        """Sentences shown to the user when the run begins."""
        return self._start_notices

    def add_start_notice(self, notice: str) -> None:
        log.warning("%s", notice)
        self._start_notices.append(notice)

    @property
    def state(self) -> CoreState:
        return self.engine.state

    @property
    def descriptions(self) -> Descriptions:
        return self.engine.descriptions

    @property
    def stalled(self) -> bool:
        return self.engine.commits.stalled

    @property
    def alive(self) -> bool:
        return True

    def was_interrupted(self, job: Job, position: int) -> bool:
        """Always False: a job whose attempt was interrupted waits like any other one."""
        return False

    def held_prerequisite(self, job: Job) -> HeldPrerequisite | None:
        """Always None: what a job waits for is explained from the state of the manager."""
        return None

    def arrival(self) -> SubmissionContext:
        """The values of submission variables for a request that arrives now."""
        self._requests += 1
        self.engine.journal.set_metadata(SUBMISSIONS, self._requests)
        return SubmissionContext(self._requests, datetime.now(), self._cluster_name, uuid.uuid4().hex)
