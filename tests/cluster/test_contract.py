"""All batch systems and queues pass the same cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState, BatchSystem, Phase
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.cluster.slurm.queue import PHASES, SlurmQueue
from tests.cluster.contract import ELSEWHERE, QueueContract, Show, StateContract, SystemContract, fields
from tests.support.memory_batch import VARIABLE, MemoryBatch, MemoryQueue, register
from tests.support.pilot import environment
from tests.support.slurm_programs import SlurmPrograms


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    return register(monkeypatch)


class TestSlurm(SystemContract):
    @pytest.fixture
    def system(self) -> BatchSystem:
        return batch_system("slurm")

    def test_it_searches_only_the_named_jobs_of_the_user(self, system: BatchSystem):
        queue = system.remote_queue()
        assert queue is not None
        assert fields(queue.find_jobs) == {"user", "names"}


class TestHostfile(SystemContract):
    @pytest.fixture
    def system(self) -> BatchSystem:
        return batch_system("hostfile")


class TestMemory(SystemContract):
    @pytest.fixture
    def system(self, memory: MemoryBatch) -> BatchSystem:
        return memory


SCONTROL = """#!/bin/bash
[ "$2" = config ] && {{ echo "ClusterName = big"; exit; }}
[ -z "{state}" ] && {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
echo "JobId=7 JobName=a"
echo "   JobState={state} Reason=None Dependency=(null)"
"""
STATES = {phase: state for state, phase in PHASES.items()} | {Phase.ENDING: "COMPLETING"}


class TestSlurmStates(StateContract):
    cluster = "big"

    @pytest.fixture
    def system(self) -> BatchSystem:
        return batch_system("slurm")

    @pytest.fixture
    def show(self, tmp_path: Path) -> Show:
        def show(phase: Phase | None) -> Mapping[str, str]:
            program = tmp_path / "scontrol"
            program.write_text(SCONTROL.format(state="" if phase is None else STATES[phase]))
            program.chmod(0o755)
            return environment(PATH=f"{tmp_path}:/bin:/usr/bin")

        return show

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "big"}

    def test_a_job_that_its_own_cluster_has_forgotten_is_over(self, system: BatchSystem, show: Show):
        assert system.state_of(AllocationRef("7", "big", "slurm"), show(None)) is AllocationState.OVER


class TestMemoryStates(StateContract):
    @pytest.fixture
    def system(self, memory: MemoryBatch) -> BatchSystem:
        return memory

    @pytest.fixture
    def show(self, memory: MemoryBatch) -> Show:
        def show(phase: Phase | None) -> Mapping[str, str]:
            if phase is not None:
                memory.queue.set("7", phase)
            return {}

        return show

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {VARIABLE: "7"}


class TestSlurmQueue(QueueContract):
    @pytest.fixture
    def queue(self) -> SlurmQueue:
        return SlurmQueue()

    @pytest.fixture
    def working(self, tmp_path: Path) -> Mapping[str, str]:
        programs = SlurmPrograms(tmp_path)
        programs.know("6", "PENDING")
        return environment(PATH=str(programs.path))

    @pytest.fixture
    def unreachable(self) -> Mapping[str, str]:
        return ELSEWHERE

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7"}


class TestMemoryQueue(QueueContract):
    @pytest.fixture
    def queue(self, memory: MemoryBatch) -> MemoryQueue:
        return memory.queue

    @pytest.fixture
    def working(self) -> Mapping[str, str]:
        return {}

    @pytest.fixture
    def unreachable(self, queue: MemoryQueue) -> Mapping[str, str]:
        queue.down = True
        return {}

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {VARIABLE: "7"}
