"""Random lives of a core, written to a registry: a manager that takes them up has the same books."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import NodesDrained
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.ledger_reader import UnreportedRecords
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import DRAINED_NODES
from qcg.pilotjob.manager import resume
from tests.core.strategies import COUNTERS
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
        core = Core(self.nodes, rerun_lost=self.rerun_lost, counters=COUNTERS, drain_after=self.drain_after)
        journal = Journal.create(path)
        for event, at in self.history:
            for effect in core.handle(event, at):
                journal.record(effect)
                if isinstance(effect, NodesDrained):
                    journal.set_metadata(DRAINED_NODES, effect.drained)
        resumed = CoreState(self.nodes, rerun_lost=self.rerun_lost, counters=COUNTERS)
        resume.restore(resumed, journal, UnreportedRecords([], set(), True))
        journal.close()
        assert states_of(resumed) == states_of(core.state)
        assert past_of(resumed) == past_of(core.state)
        assert resumed.health.drained == core.state.health.drained


def states_of(core: CoreState) -> dict[str, tuple[State, list[State]]]:
    return {
        job.name: (job.state, [] if job.iterations is None else [State(state) for state in job.iterations.states])
        for job in core.jobs.values()
    }


def past_of(core: CoreState) -> dict[tuple[str, int], tuple[int, dict[str, int], int]]:
    """Earlier attempts of jobs that are not final."""
    return {
        (job.name, position): (past.attempts, past.retries, past.steps)
        for job in core.jobs.values()
        if not job.state.is_final
        for position, past in core.past.get(job.seq, {}).items()
    }


TestRecorded = pytest.mark.sampled(Recorded.TestCase)
TestRecorded.settings = settings(max_examples=per_tier(20, 320), stateful_step_count=40)
