"""Random sequences of events in a core, written to a registry: a manager that resumes restores the same state."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import settings

from qcg.pilotjob.core.core import Core
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import NodesDrained
from qcg.pilotjob.core.finalize import is_met
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.outcomes import has_begun
from qcg.pilotjob.core.queue import entry_of
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.restore import LedgerRecords, restore
from qcg.pilotjob.description.model import ResourceRequest
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import DRAINED_NODES
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
        if not self.base[0].max_seq:  # otherwise the restored core would have another initial state
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
        restore(resumed, journal.load(), LedgerRecords(), core.state.now)
        journal.close()
        assert states_of(resumed) == states_of(core.state)
        assert past_of(resumed) == past_of(core.state)
        assert waiting_of(resumed) == waiting_of(core.state)
        assert begun_of(resumed) == begun_of(core.state)
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


class Waits(NamedTuple):
    """The reason why a job or iteration waits."""

    held_since: float
    next_at: float
    """The end of its pause, if that is in the future."""
    is_ready: bool
    request: ResourceRequest
    wall_time: float
    rank: int


def waiting_of(core: CoreState) -> dict[tuple[str, int], Waits]:
    """The requests of waiting jobs and iterations, and whether they can be started when resources are free."""
    found = {}
    for job in core.jobs.values():
        for position in [-1] if job.iterations is None else range(len(job.iterations)):
            if core.state_of(job, position) is not State.QUEUED:
                continue
            entry = entry_of(job, position)
            next_at, _ = core.paused.get((job.seq, position), (0.0, job))
            held_since = core.holds.since(job, position)
            # Pauses end in the next scheduling pass.
            is_over = 0 < next_at <= core.now and is_met(job, position) and not held_since
            demand = entry.demand
            found[job.name, position] = Waits(
                held_since,
                next_at if next_at > core.now else 0.0,
                is_over or entry.can_reach(position),
                demand.request,
                demand.wall_time,
                demand.rank,
            )
    return found


def begun_of(core: CoreState) -> dict[str, list[bool]]:
    """Jobs and iterations that have started in any attempt."""
    return {
        job.name: [
            has_begun(core, job, position)
            for position in ([-1] if job.iterations is None else range(len(job.iterations)))
        ]
        for job in core.jobs.values()
    }


TestRecorded = pytest.mark.sampled(Recorded.TestCase)
TestRecorded.settings = settings(max_examples=per_tier(20, 320), stateful_step_count=40)
