"""All batch systems and queues pass the same cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import (
    Allocation,
    AllocationState,
    AllocationView,
    BatchSystem,
    EndCause,
    Phase,
)
from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.cluster.slurm.queue import SlurmQueue
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.core.resources import NodeSpec
from tests.cluster.queue_contract import QueueContract
from tests.cluster.state_contract import Running, Show, ShowEnd, StateContract
from tests.cluster.system_contract import ELSEWHERE, SystemContract, fields
from tests.support.memory_batch import NODES, VARIABLE, MemoryBatch, MemoryQueue, register
from tests.support.pilot import environment
from tests.support.slurm_programs import SlurmPrograms


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBatch:
    return register(monkeypatch)


class TestSlurm(SystemContract):
    passes_environment = True
    misleading = ("SLURM_STEP_ID", "SLURM_PROCID", "PMI_RANK", "SLURM_CPU_BIND_TYPE", "SLURM_GPUS_ON_NODE")
    of_the_site = ("SLURM_CONF",)
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
    of_the_site = ("MEMORY_CONF",)

    @pytest.fixture
    def system(self, memory: MemoryBatch) -> BatchSystem:
        return memory


SHAPES = Path(__file__).parent / "slurm/shapes"
SCONTROL = """#!/bin/bash
[ "$2" = config ] && {{ echo "ClusterName = big"; exit; }}
[ "$2" = node ] && {{ echo "$(<{nodes})"; exit; }}
[ -e {job} ] || {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
echo "$(<{job})"
"""
STATES = {
    Phase.WAITING: "PENDING",
    Phase.STARTING: "CONFIGURING",
    Phase.RUNNING: "RUNNING",
    Phase.SUSPENDED: "SUSPENDED",
    Phase.ENDING: "COMPLETING",
    Phase.OVER: "TIMEOUT",
}
STATES_OF_CAUSES = {
    EndCause.UNKNOWN: "COMPLETED",
    EndCause.TIME_LIMIT: "TIMEOUT",
    EndCause.NODE_FAILED: "NODE_FAIL",
    EndCause.PREEMPTED: "PREEMPTED",
    EndCause.CANCELLED: "CANCELLED",
}


class Scontrol:
    """A stub of `scontrol` with one job, number 1, on the nodes n1, n2 and n3."""

    def __init__(self, directory: Path) -> None:
        self._job = directory / "job"
        self.environ = environment(PATH=f"{directory}:/bin:/usr/bin")
        program = directory / "scontrol"
        program.write_text(SCONTROL.format(job=self._job, nodes=SHAPES / "whole.nodes"))
        program.chmod(0o755)

    def show(self, state: str, restarts: int = 0, exit_code: str = "0:0") -> Mapping[str, str]:
        text = (SHAPES / "whole.job").read_text().replace("JobState=RUNNING", f"JobState={state}")
        text = text.replace("Restarts=0", f"Restarts={restarts}").replace(" ExitCode=0:0", f" ExitCode={exit_code}")
        self._job.write_text(text)
        return {**self.environ, "SLURM_RESTART_COUNT": str(restarts)} if restarts else self.environ


class TestSlurmStates(StateContract):
    cluster = "big"
    allocation_id = "1"

    @pytest.fixture
    def system(self) -> BatchSystem:
        return batch_system("slurm")

    @pytest.fixture
    def scontrol(self, tmp_path: Path) -> Scontrol:
        return Scontrol(tmp_path)

    @pytest.fixture
    def show(self, scontrol: Scontrol) -> Show:
        def show(phase: Phase | None, restarts: int = 0) -> Mapping[str, str]:
            return scontrol.environ if phase is None else scontrol.show(STATES[phase], restarts)

        return show

    @pytest.fixture
    def show_end(self, scontrol: Scontrol) -> ShowEnd:
        def show_end(cause: EndCause, exit_code: int) -> Mapping[str, str]:
            code = f"0:{exit_code - 128}" if exit_code > 128 else f"{exit_code}:0"
            return scontrol.show(STATES_OF_CAUSES[cause], exit_code=code)

        return show_end

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {"SLURM_JOB_ID": "1", "SLURM_CLUSTER_NAME": "big"}

    @pytest.fixture
    def running(self, scontrol: Scontrol, inside: Mapping[str, str]) -> Running:
        nodes = {"n1": "10.77.0.1", "n2": "10.77.0.2", "n3": "10.77.0.3"}
        allocation = Allocation(
            AllocationRef("1", "big", "slurm"),
            specs=[NodeSpec(name, (0, 1, 2, 3), ("0",), 4000) for name in nodes],
            addresses=nodes,
            end=1794784442.0,
            cpus=dict.fromkeys(nodes, (0, 1, 2, 3)),
            layouts=dict.fromkeys(nodes, (4, 1)),
        )
        view = AllocationView(
            "1",
            Phase.RUNNING,
            "RUNNING",
            output="/home/me/demo/rec/whole.out",
            nodes="n[1-3]",
            limit=300.0,
            end_cause=EndCause.CANCELLED,
        )
        return Running({**scontrol.show("RUNNING"), **inside}, allocation, view)

    def test_a_job_that_its_own_cluster_has_forgotten_is_over(self, system: BatchSystem, show: Show):
        assert system.state_of(AllocationRef("1", "big", "slurm"), show(None)) is AllocationState.OVER


class TestMemoryStates(StateContract):
    @pytest.fixture
    def system(self, memory: MemoryBatch) -> BatchSystem:
        return memory

    @pytest.fixture
    def show(self, memory: MemoryBatch) -> Show:
        def show(phase: Phase | None, restarts: int = 0) -> Mapping[str, str]:
            if phase is not None:
                memory.queue.set("7", phase, requeue_count=restarts)
            return {}

        return show

    @pytest.fixture
    def show_end(self, memory: MemoryBatch) -> ShowEnd:
        def show_end(cause: EndCause, exit_code: int) -> Mapping[str, str]:
            memory.queue.set("7", Phase.OVER, end_cause=cause, exit_code=exit_code)
            return {}

        return show_end

    @pytest.fixture
    def inside(self) -> Mapping[str, str]:
        return {VARIABLE: "7"}

    @pytest.fixture
    def running(self, memory: MemoryBatch, inside: Mapping[str, str]) -> Running:
        memory.end = 1800000000.0
        memory.queue.set("7", Phase.RUNNING, output="/wd/memory.out", nodes="m0", limit=90.0)
        allocation = Allocation(
            AllocationRef("7", "", "memory"),
            specs=[NodeSpec("m0", (0, 1, 2, 3))],
            addresses={"m0": "m0"},
            end=1800000000.0,
        )
        view = AllocationView(
            "7",
            Phase.RUNNING,
            "RUNNING",
            output="/wd/memory.out",
            nodes="m0",
            limit=90.0,
            end_cause=EndCause.CANCELLED,
        )
        return Running(inside, allocation, view)


class TestSlurmQueue(QueueContract):
    prefix = "#SBATCH "
    expected_options = (
        (
            AllocationSpec(nodes="2-3", limit="1h30m", partition="fast", account="me", qos="high", gres="thing:1"),
            [
                *("--job-name=name", "--chdir=/wd", "--nodes=2-3", "--exclusive", "--mem=0", "--time=01:30:00"),
                *("--partition=fast", "--account=me", "--qos=high", "--gres=thing:1", "--output=/wd/slurm-%j.out"),
                *("--no-kill", "--requeue"),
            ],
        ),
        (
            AllocationSpec(
                nodes="2",
                cores=4,
                gpus_per_node="a100:2",
                mem="4000M",
                exclusive=True,
                job_name="mine",
                output="out/%j.txt",
                extra_options=["--constraint=big"],
            ),
            [
                *("--job-name=mine", "--chdir=/wd", "--nodes=2", "--ntasks-per-node=4", "--exclusive", "--mem=4000M"),
                *("--gpus-per-node=a100:2", "--output=out/%j.txt", "--no-kill", "--requeue", "--constraint=big"),
            ],
        ),
    )

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
    prefix = "#MEMORY "
    missing_fields = ("qos", "gres")
    expected_options = (
        (
            AllocationSpec(nodes="2", limit="1h30m", partition="fast", account="me", exclusive=True),
            [
                *("--name=name", "--nodes=2", "--seconds=5400", "--queue=fast", "--account=me", "--alone=yes"),
                "--output=/wd/memory.out",
            ],
        ),
        (
            AllocationSpec(
                nodes="3",
                cores=4,
                gpus_per_node="a100:2",
                mem="4G",
                job_name="mine",
                output="mine.out",
                extra_options=["--more=1"],
            ),
            [
                *("--name=mine", "--nodes=3", "--cores=4", "--gpus=2", "--mib=4096", "--output=/wd/mine.out"),
                "--more=1",
            ],
        ),
    )

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
