"""All batch systems and queues pass the same cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import AllocationState, BatchSystem, Phase
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.cluster.slurm.queue import PHASES, SlurmQueue
from tests.cluster.contract import ELSEWHERE, QueueContract, Show, StateContract, SystemContract, fields
from tests.support.memory_batch import NODES, VARIABLE, MemoryBatch, MemoryQueue, register
from tests.support.pilot import environment
from tests.support.slurm_programs import SlurmPrograms


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    return register(monkeypatch)


class TestSlurm(SystemContract):
    listed_line = "7|RUNNING|qcg-pm.a-1"
    submitted_line = "7;big"

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
echo "   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0"
"""
STATES = {phase: state for state, phase in PHASES.items()} | {Phase.ENDING: "COMPLETING"}


class TestSlurmStates(StateContract):
    cluster = "big"

    @pytest.fixture
    def system(self) -> BatchSystem:
        return batch_system("slurm")

    @pytest.fixture
    def show(self, tmp_path: Path) -> Show:
        def show(phase: Phase | None, restarts: int = 0) -> Mapping[str, str]:
            program = tmp_path / "scontrol"
            program.write_text(SCONTROL.format(state="" if phase is None else STATES[phase], restarts=restarts))
            program.chmod(0o755)
            count = {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
            return environment(PATH=f"{tmp_path}:/bin:/usr/bin", **count)

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
        def show(phase: Phase | None, restarts: int = 0) -> Mapping[str, str]:
            if phase is not None:
                memory.queue.set("7", phase, restarts=restarts)
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
    def programs(self, tmp_path: Path) -> SlurmPrograms:
        return SlurmPrograms(tmp_path)

    @pytest.fixture
    def working(self, programs: SlurmPrograms) -> Mapping[str, str]:
        programs.know("6", "PENDING")
        return environment(PATH=f"{programs.path}:/bin:/usr/bin")

    @pytest.fixture
    def submissions(self, programs: SlurmPrograms) -> Callable[[], list[list[str]]]:
        return lambda: [line.split() for line in programs.submitted]

    @pytest.fixture
    def unreachable(self) -> Mapping[str, str]:
        return ELSEWHERE

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n1"}


class TestMemoryQueue(QueueContract):
    @pytest.fixture
    def queue(self, memory: MemoryBatch) -> MemoryQueue:
        return memory.queue

    @pytest.fixture
    def working(self) -> Mapping[str, str]:
        return {}

    @pytest.fixture
    def submissions(self, queue: MemoryQueue) -> Callable[[], list[list[str]]]:
        return lambda: [[f"after={queue.after[one]}"] if one in queue.after else [] for one in queue.views]

    @pytest.fixture
    def unreachable(self, queue: MemoryQueue) -> Mapping[str, str]:
        queue.down = True
        return {}

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {VARIABLE: "7", NODES: "m0"}
