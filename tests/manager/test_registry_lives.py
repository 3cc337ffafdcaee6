"""Random lives of a core, written to a registry: a manager that takes them up has the same books."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.ledger_reader import UnreportedRecords
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.manager import resume
from tests.core.test_state_machine import CoreMachine
from tests.support.tiers import per_tier


class Recorded(CoreMachine):
    def move(self, nodes: list[NodeSpec]) -> None:
        self.check_registry()
        super().move(nodes)

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.check_registry()
        super().teardown()

    def check_registry(self) -> None:
        if not self.base[0].max_seq:  # else its books began with others
            with TemporaryDirectory() as directory:
                self.compare(Path(directory) / "registry.sqlite")

    def compare(self, path: Path) -> None:
        core = Core(self.nodes, rerun_lost=self.rerun_lost)
        journal = Journal.create(path)
        for event, at in self.history:
            for effect in core.handle(event, at):
                journal.record(effect)
        resumed = CoreState(self.nodes, rerun_lost=self.rerun_lost)
        resume.restore(resumed, journal, UnreportedRecords([], set(), True))
        journal.close()
        assert states_of(resumed) == states_of(core.state)


def states_of(core: CoreState) -> dict[str, tuple[State, list[State]]]:
    return {
        job.name: (job.state, [] if job.iterations is None else [State(state) for state in job.iterations.states])
        for job in core.jobs.values()
    }


TestRecorded = pytest.mark.sampled(Recorded.TestCase)
TestRecorded.settings = settings(max_examples=per_tier(20, 320), stateful_step_count=40)
