"""The list of batch systems: a new one is a class and a line of registration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qcg.pilotjob.cli.commands.run import command as run_command
from qcg.pilotjob.cluster import registry
from qcg.pilotjob.cluster.agent_start import AgentCommand, AgentStart, SshStart, StartMethod
from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation, AllocationQueue, AllocationState, BatchSystem
from qcg.pilotjob.cluster.errors import BatchError, ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.registry import Registration
from qcg.pilotjob.cluster.slurm.queue import SlurmQueue
from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.executors.prestart import is_useful
from qcg.pilotjob.launch.site import MultiNode
from qcg.pilotjob.manager.placement import Placement, agent_executor
from qcg.pilotjob.runs.resume_hint import resume_command


class Toy(BatchSystem):
    """A batch system that gives one node to every job."""

    name = "toy"
    label = "Toy"

    def __init__(self) -> None:
        self.methods: list[StartMethod] = []
        """How agents were to be started."""

    def allocation_ref(self, environ: Mapping[str, str]) -> AllocationRef | None:
        return AllocationRef(environ["TOY_JOB"], "", self.name) if "TOY_JOB" in environ else None

    def find_allocation(self, environ: Mapping[str, str], argument: str = "") -> Allocation:
        return Allocation(AllocationRef(environ["TOY_JOB"], "", self.name), [NodeSpec("t1", (0, 1))], {"t1": "t1"})

    def end_time(self, environ: Mapping[str, str], patience: float) -> float | None:
        return None

    def state_of(self, allocation: AllocationRef, environ: Mapping[str, str]) -> AllocationState:
        return AllocationState.OVER

    def agent_start(self, method: StartMethod, agent: AgentCommand, environ: Mapping[str, str]) -> AgentStart:
        self.methods.append(method)
        return SshStart(agent, environ)

    def multi_node(self) -> MultiNode:
        return MultiNode()


class ToyQueue(SlurmQueue):
    """A queue without a command of its own in `qcg-pm`."""

    submit_program = "toysub"
    qcg_pm_command = AllocationQueue.qcg_pm_command


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    system = Toy()
    monkeypatch.setitem(sys.modules, "toy_batch_system", SimpleNamespace(SYSTEM=system))
    line = Registration("toy", "toy_batch_system", ("TOY_JOB",))
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, line))
    return system


IN_JOB = {"TOY_JOB": "5", "CUDA_VISIBLE_DEVICES": ""}


def test_one_line_of_registration_is_enough(toy: BatchSystem):
    assert "toy" in registry.resource_names()
    assert registry.system_in_use(IN_JOB) is toy
    assert registry.current_allocation(IN_JOB) == AllocationRef("5", "", "toy")
    assert "TOY_JOB" in registry.allocation_variables()
    found = find_nodes("auto", None, IN_JOB)
    assert isinstance(found, Allocation)
    assert [spec.name for spec in found.specs] == ["t1"]
    assert find_nodes("toy", None, IN_JOB) == found
    assert not is_useful("auto", None, None, IN_JOB), "agents start on the nodes of the allocation"


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        ([], StartMethod.BATCH),
        (["--nl-start-method=batch"], StartMethod.BATCH),
        (["--nl-start-method=ssh"], StartMethod.SSH),
        (["--nl-start-method=slurm"], StartMethod.BATCH),
    ],
)
def test_the_batch_system_in_use_gets_the_method_to_start_agents(
    toy: Toy, tmp_path: Path, arguments: list[str], method: StartMethod
):
    context = run_command.make_context("run", ["jobs.json", *arguments])
    options = Options(nl_start_method=context.params["nl_start_method"])
    found = toy.find_allocation(IN_JOB)
    journal = SimpleNamespace(metadata=lambda key: None)
    unused: Any = None
    agent_executor(Placement(found.specs, {}, found), options, tmp_path, unused, cast(Any, journal), unused, unused)
    assert toy.methods == [method]


@pytest.mark.parametrize("value", ["", "slurm", "batch"])
def test_runs_of_earlier_versions_start_agents_in_the_native_way(value: str):
    assert StartMethod.of_option(value) is StartMethod.BATCH


def test_the_name_of_every_batch_system_is_an_alias_of_the_native_way(toy: Toy):
    assert registry.start_methods() == ["batch", "ssh", "slurm", "toy"]


def test_alloc_works_beside_a_registered_batch_system_without_a_queue(toy: BatchSystem, tmp_path: Path):
    assert registry.queue_names() == [line.name for line in registry.SYSTEMS if line.submit_program]
    assert "toy" not in registry.queue_names()
    assert "toy" not in registry.schema_names()
    assert registry.system_for_submission({"PATH": str(tmp_path)}) == "slurm"
    assert registry.system_for_submission({"PATH": str(tmp_path), **IN_JOB}) == "slurm"


def test_only_batch_systems_with_a_remote_queue_are_for_remote_hosts(monkeypatch: pytest.MonkeyPatch):
    lines = (
        Registration("queue", "no_such_module", submit_program="submit"),
        Registration("remote", "no_such_module", has_remote_queue=True),
    )
    monkeypatch.setattr(registry, "SYSTEMS", lines)
    assert registry.remote_queue_names() == ["remote"]


def test_the_installed_program_chooses_the_batch_system_without_loading_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    line = Registration("lazy", "there_is_no_such_module", ("LAZY_JOB",), submit_program="lazysub")
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, line))
    (tmp_path / "lazysub").touch(mode=0o755)
    assert registry.queue_names()[-1] == "lazy"
    assert registry.system_for_submission({"PATH": str(tmp_path)}) == "lazy"


def test_a_batch_system_is_installed_with_all_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    line = Registration("lazy", "there_is_no_such_module", ("LAZY_JOB",), submit_program="submit", also=("lazyrun",))
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, line))
    environ = {"PATH": str(tmp_path)}
    (tmp_path / "submit").touch(mode=0o755)
    assert registry.installed_queues(environ) == [], "this is the program of another batch system"
    (tmp_path / "lazyrun").touch(mode=0o755)
    assert registry.installed_queues(environ) == ["lazy"]


def test_several_installed_batch_systems_are_named(toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    line = Registration("lazy", "there_is_no_such_module", ("LAZY_JOB",), submit_program="lazysub")
    monkeypatch.setattr(registry, "SYSTEMS", (*registry.SYSTEMS, line))
    environ = {"PATH": str(tmp_path)}
    (tmp_path / "lazysub").touch(mode=0o755)
    assert registry.other_queues(environ) == ""
    (tmp_path / "sbatch").touch(mode=0o755)
    assert registry.system_for_submission(environ) == "slurm"
    assert registry.other_queues(environ) == (
        "Several batch systems are installed: slurm (sbatch), lazy (lazysub). slurm is used; --batch-system chooses"
        " another one."
    )
    chosen = {**environ, "QCG_PJM_BATCH_SYSTEM": "lazy"}
    assert (registry.system_for_submission(chosen), registry.other_queues(chosen)) == ("lazy", "")


@pytest.mark.parametrize("line", registry.SYSTEMS, ids=lambda line: line.name)
def test_every_registration_agrees_with_its_batch_system(line: Registration):
    system = registry.batch_system(line.name)
    assert system.name == line.name
    assert ("" if system.queue is None else system.queue.submit_program) == line.submit_program
    assert (system.schema is not None) == line.has_schema
    assert (system.remote_queue() is not None) == line.has_remote_queue


def test_the_order_of_registrations_does_not_choose_that_of_earlier_versions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "SYSTEMS", registry.SYSTEMS[::-1])
    assert registry.batch_system().name == "slurm"


def test_a_batch_system_without_a_queue_takes_no_submissions(toy: BatchSystem):
    with pytest.raises(BatchError, match="no allocations can be submitted to Toy"):
        registry.queue_of("toy")


@pytest.mark.parametrize(
    ("name", "command"),
    [("slurm", "qcg-pm sbatch"), ("", "qcg-pm sbatch"), ("toy", "qcg-pm alloc"), ("unknown", "qcg-pm alloc")],
)
def test_the_batch_system_chooses_the_command_of_resume_hints(
    name: str, command: str, toy: BatchSystem, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(toy, "queue", ToyQueue())
    assert registry.submit_command(name) == command
    path = Path("/runs/one")
    assert resume_command(path, "7", name) == (
        f"`{command} --resume /runs/one` (inside an allocation: `qcg-pm run --resume /runs/one`)"
    )
    assert resume_command(path, "", name) == "`qcg-pm run --resume /runs/one`"


def test_outside_any_allocation_no_batch_system_is_in_use():
    assert registry.system_in_use({"PATH": "/bin"}) is None
    assert registry.current_allocation({}) is None
    assert not registry.is_in_allocation({"SLURM_JOB_ID": ""})


def test_no_name_means_the_batch_system_of_earlier_versions():
    assert registry.batch_system().name == "slurm"
    assert registry.batch_system("hostfile").name == "hostfile"
    known = ", ".join(line.name for line in registry.SYSTEMS)
    with pytest.raises(ClusterError, match=f"there is no batch system 'nonesuch'; known ones: {known}"):
        registry.batch_system("nonesuch")
