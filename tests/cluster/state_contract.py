"""Cases for allocations of every batch system with a queue, to be subclassed: see `test_contract.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pytest

from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import (
    Allocation,
    AllocationState,
    AllocationView,
    BatchSystem,
    EndCause,
    Phase,
)
from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes


class Show(Protocol):
    """Makes the batch system show an allocation in a phase, or forget it for None, after it was queued again so many
    times. Returns an environment in which the batch system answers, of a process that the allocation has started."""

    def __call__(self, phase: Phase | None, restarts: int = 0) -> Mapping[str, str]: ...


class ShowEnd(Protocol):
    """Makes the batch system show an allocation that has ended for this cause, and whose batch script had this exit
    code. Returns an environment in which the batch system answers."""

    def __call__(self, cause: EndCause, exit_code: int) -> Mapping[str, str]: ...


class Running(NamedTuple):
    """An allocation that runs, with a time limit."""

    environ: Mapping[str, str]
    """The environment of a process in it, in which the batch system answers."""
    allocation: Allocation
    """What `find_allocation` returns there."""
    view: AllocationView
    """What `AllocationQueue.view` returns there."""


class StateContract:
    """Cases for the states of allocations, of a system with a queue. A subclass has the fixtures `system`; `show` and
    `show_end`, a `Show` and a `ShowEnd` for the allocation `allocation_id`; `inside`: the variables of a process in
    that allocation; and `running`: that allocation while it runs, with a time limit."""

    cluster = ""
    """The cluster of the batch system."""
    allocation_id = "7"
    """The id of the allocation, in the form of the batch system."""
    missing_phases: tuple[Phase, ...] = ()
    """Phases that the batch system does not report."""
    missing_causes: tuple[EndCause, ...] = ()
    """Causes that the batch system does not report."""

    def test_the_allocation_of_this_process_is_found(self, system: BatchSystem, running: Running):
        expected = running.allocation
        assert expected.specs
        assert expected.end is not None
        assert all(spec.cores for spec in expected.specs)
        assert set(expected.addresses) == {spec.name for spec in expected.specs}
        assert system.find_allocation(running.environ) == expected
        assert system.allocation_ref(running.environ) == expected.ref
        assert expected.ref == AllocationRef(self.allocation_id, self.cluster, system.name)

    def test_a_run_uses_the_allocation_of_its_process(self, running: Running):
        assert find_nodes("auto", None, running.environ) == running.allocation

    def test_the_end_of_the_allocation_is_found(self, system: BatchSystem, running: Running):
        assert system.end_time(running.environ, 30.0) == running.allocation.end

    def test_users_see_where_an_allocation_runs_and_how_long(self, system: BatchSystem, running: Running):
        assert system.queue is not None
        assert running.view.limit
        assert running.view.output
        assert running.view.nodes
        assert system.queue.view(self.allocation_id, running.environ) == running.view

    def test_a_sigterm_without_another_cause_is_a_cancellation(self, system: BatchSystem, running: Running):
        assert system.queue is not None
        seen = system.queue.view(self.allocation_id, running.environ)
        assert seen is not None
        assert seen.end_cause is EndCause.CANCELLED
        assert not seen.was_cancelled, "it is not over"

    @pytest.mark.parametrize("cause", EndCause)
    def test_the_cause_of_an_end_is_reported(self, system: BatchSystem, show_end: ShowEnd, cause: EndCause):
        # After a cancellation, and for no other cause, a chain of allocations stops.
        if cause in self.missing_causes:
            pytest.skip(f"{system.label} does not report {cause.name}")
        assert system.queue is not None
        seen = system.queue.view(self.allocation_id, show_end(cause, 0))
        assert seen is not None
        assert (seen.phase, seen.end_cause) == (Phase.OVER, cause)
        assert seen.was_cancelled is (cause is EndCause.CANCELLED)

    @pytest.mark.parametrize("code", [0, 3, 143])
    def test_the_exit_code_of_the_batch_script_is_reported(self, system: BatchSystem, show_end: ShowEnd, code: int):
        assert system.queue is not None
        seen = system.queue.view(self.allocation_id, show_end(EndCause.UNKNOWN, code))
        assert seen is not None
        assert seen.exit_code == code

    @pytest.mark.parametrize(
        ("phase", "state"),
        [
            (Phase.STARTING, AllocationState.ACTIVE),
            (Phase.RUNNING, AllocationState.ACTIVE),
            (Phase.SUSPENDED, AllocationState.ACTIVE),
            (Phase.ENDING, AllocationState.ENDING),
            (Phase.WAITING, AllocationState.OVER),  # the allocation was queued again: its earlier run has ended
            (Phase.OVER, AllocationState.OVER),
        ],
    )
    def test_the_phase_of_an_allocation_shows_whether_its_processes_can_be_running(
        self, system: BatchSystem, show: Show, phase: Phase, state: AllocationState
    ):
        if phase in self.missing_phases:
            pytest.skip(f"{system.label} does not report {phase.name}")
        ref = AllocationRef(self.allocation_id, self.cluster, system.name)
        assert system.state_of(ref, show(phase)) is state
        assert phase.state is state

    def test_an_allocation_that_this_batch_system_cannot_know_is_not_over(self, system: BatchSystem, show: Show):
        environ = show(None)
        with pytest.raises(ClusterError):
            system.state_of(AllocationRef(self.allocation_id, "another-cluster", system.name), environ)

    @pytest.mark.parametrize("phase", Phase)
    def test_an_allocation_is_shown_in_each_phase(self, system: BatchSystem, show: Show, phase: Phase):
        if phase in self.missing_phases:
            pytest.skip(f"{system.label} does not report {phase.name}")
        assert system.queue is not None
        seen = system.queue.view(self.allocation_id, show(phase))
        assert seen is not None
        assert (seen.id, seen.phase) == (self.allocation_id, phase)
        assert seen.state

    def test_a_forgotten_allocation_has_no_view(self, system: BatchSystem, show: Show):
        assert system.queue is not None
        assert system.queue.view(self.allocation_id, show(None)) is None

    @pytest.mark.parametrize("restarts", [0, 1, 2])
    def test_an_allocation_and_its_processes_agree_on_how_often_it_was_queued_again(
        self, system: BatchSystem, show: Show, inside: Mapping[str, str], restarts: int
    ):
        assert system.queue is not None
        environ = {**show(Phase.RUNNING, restarts), **inside}
        seen = system.queue.view(self.allocation_id, environ)
        assert seen is not None
        assert (system.requeue_count(environ, 30.0), seen.requeue_count) == (restarts, restarts)

    def test_an_allocation_that_waits_again_was_queued_again(
        self, system: BatchSystem, show: Show, inside: Mapping[str, str]
    ):
        # Without this the allocation runner takes the SIGTERM of a requeue for a cancellation.
        assert system.queue is not None
        before = system.requeue_count({**show(Phase.RUNNING, 0), **inside}, 30.0)
        seen = system.queue.view(self.allocation_id, show(Phase.WAITING, 1))
        assert seen is not None
        assert seen.requeue_count > before

    @pytest.mark.parametrize("phase", [None, Phase.WAITING, Phase.OVER])
    def test_a_run_in_an_allocation_that_is_over_or_forgotten_does_not_use_this_machine(
        self,
        system: BatchSystem,
        show: Show,
        inside: Mapping[str, str],
        phase: Phase | None,
    ):
        environ = {**show(phase), **inside}
        assert registry.system_in_use(environ) is system
        with pytest.raises(ClusterError):
            find_nodes("auto", None, environ)
