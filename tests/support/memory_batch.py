"""A batch system in memory: tests set the states of allocations, and read submissions and cancellations."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart, SshStart, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import (
    Allocation,
    AllocationQueue,
    AllocationState,
    AllocationView,
    BatchSystem,
    EndCause,
    Phase,
)
from qcg.pilotjob.cluster.commands import COMMAND_TIMEOUT
from qcg.pilotjob.cluster.errors import AllocationOver, BatchError, ClusterError, NoAllocation
from qcg.pilotjob.cluster.registry import Registration
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.launch.site import MultiNode

VARIABLE = "MEMORY_JOB"
NODES = "MEMORY_NODES"
CORES = 4


class MemoryQueue(AllocationQueue):
    """A queue that numbers allocations from 1; tests change their states."""

    submit_program = "memory-submit"

    def __init__(self) -> None:
        self.views: dict[str, AllocationView] = {}
        self.after: dict[str, str] = {}
        """For each allocation that waits for another, that one."""
        self.down = False
        """The batch system does not answer."""

    def set(self, allocation_id: str, phase: Phase, **fields: Any) -> None:
        """Change the state of an allocation."""
        known = self.views.get(allocation_id, AllocationView(allocation_id, phase, ""))
        self.views[allocation_id] = msgspec.structs.replace(known, phase=phase, state=phase.name, **fields)

    def options(self, spec: AllocationSpec, name: str, wd: Path) -> list[str]:
        if spec.qos is not None or spec.gres is not None:
            raise BatchError("--qos and --gres are not for Memory; leave them out")
        asked = {
            "nodes": spec.nodes_max,
            "cores": spec.cores,
            "seconds": spec.limit_seconds,
            "queue": spec.partition,
            "account": spec.account,
            "gpus": spec.gpu_count or None,
            "mib": spec.memory_mib,
            "alone": "yes" if spec.exclusive else None,
            "output": wd / (spec.output or "memory.out"),
        }
        given = [f"--{option}={value}" for option, value in asked.items() if value is not None]
        return [f"--name={spec.job_name or name}", *given, *spec.extra_options]

    def further_options(self, words: Iterable[str]) -> list[str]:
        found = list(words)
        if not all(word.startswith("--") for word in found):
            raise BatchError("write options as --NAME=VALUE")
        return found

    def options_kept(self, earlier: Sequence[str], further: Sequence[str]) -> list[str]:
        replaced = {option.partition("=")[0] for option in further}
        return [option for option in earlier if option.partition("=")[0] not in replaced]

    def directives(self, options: Sequence[str]) -> list[str]:
        if any("\n" in option for option in options):
            raise BatchError("an option has several lines")
        return [f"#MEMORY {shlex.quote(option)}" for option in options]

    def command_environment(self, environ: Mapping[str, str], options: Iterable[str] = ()) -> dict[str, str]:
        return {name: value for name, value in environ.items() if name not in (VARIABLE, NODES)}

    def largest_allocation(self, options: Sequence[str], environ: Mapping[str, str]) -> list[NodeSpec]:
        count = next(option.partition("=")[2] for option in options if option.startswith("--nodes="))
        return [NodeSpec(f"m{number}", tuple(range(CORES))) for number in range(int(count))]

    def submit(self, script: Path, environ: Mapping[str, str], after: str = "") -> str:
        self._ask()
        allocation_id = str(len(self.views) + 1)
        self.set(allocation_id, Phase.WAITING)
        if after in self.views and not self.views[after].is_over:
            self.after[allocation_id] = after
        return allocation_id

    def view(
        self, allocation_id: str, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT
    ) -> AllocationView | None:
        self._ask()
        view = self.views.get(allocation_id)
        if view is not None and view.phase is Phase.RUNNING and view.end_cause is EndCause.UNKNOWN:
            return msgspec.structs.replace(view, end_cause=EndCause.CANCELLED)
        return view

    def cancel(self, allocation_id: str, environ: Mapping[str, str]) -> None:
        self._ask()
        self.set(allocation_id, Phase.OVER, end_cause=EndCause.CANCELLED)

    def cancel_command(self, *allocation_ids: str) -> str:
        return " ".join(["memory-cancel", *allocation_ids])

    def _ask(self) -> None:
        if self.down:
            raise BatchError("the batch system is down")


class MemoryBatch(BatchSystem):
    """A batch system that gives one node to every allocation."""

    name = "memory"
    label = "Memory"
    queue: MemoryQueue

    def __init__(self) -> None:
        self.queue = MemoryQueue()
        self.end: float | None = None
        """When every allocation ends, in epoch seconds."""

    def allocation_ref(self, environ: Mapping[str, str]) -> AllocationRef | None:
        return AllocationRef(environ[VARIABLE], "", self.name) if VARIABLE in environ else None

    def requeue_count(self, environ: Mapping[str, str], patience: float = COMMAND_TIMEOUT) -> int:
        view = self.queue.view(environ[VARIABLE], environ, patience) if VARIABLE in environ else None
        return 0 if view is None else view.requeue_count

    def find_allocation(self, environ: Mapping[str, str], argument: str = "") -> Allocation:
        ref = self.allocation_ref(environ)
        if ref is None:
            raise NoAllocation(f"{VARIABLE} is not set")
        if self.state_of(ref, environ) is AllocationState.OVER:
            raise AllocationOver("the allocation is over")
        return Allocation(ref, [NodeSpec("m0", tuple(range(CORES)))], {"m0": "m0"}, end=self.end)

    def end_time(self, environ: Mapping[str, str], patience: float) -> float | None:
        return self.find_allocation(environ).end

    def state_of(self, allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        view = self.queue.view(allocation.id, environ)
        if view is None:
            raise ClusterError(f"allocation {allocation.id} was never submitted here")
        return view.phase.state

    def agent_start(self, method: StartMethod, agent: AgentCommand, environ: Mapping[str, str]) -> AgentStart:
        return SshStart(agent, environ, variables=(VARIABLE,))

    def multi_node(self) -> MultiNode:
        return MultiNode()

    def hidden_outside_allocation(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in (VARIABLE, NODES)]


def register(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    """Register a new instance as a batch system for the duration of a test."""
    system = MemoryBatch()
    monkeypatch.setitem(sys.modules, "memory_batch_system", SimpleNamespace(SYSTEM=system))
    line = Registration(system.name, "memory_batch_system", (VARIABLE,), submit_program=system.queue.submit_program)
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, line))
    return system
