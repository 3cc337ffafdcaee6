"""The sources of nodes, and errors about them. Tests inside real allocations are in `tests/slurm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.allocation_ref import AllocationRef
from qcg.pilotjob.cluster.base import Allocation, NodeRange
from qcg.pilotjob.cluster.errors import ClusterError, RangeError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.local.machine import local_nodes
from qcg.pilotjob.core.resources import NodeSpec
from tests.support.memory_batch import VARIABLE, register

NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def in_job_without_slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job, on a machine without Slurm, such as a container."""
    return {**NO_GPUS, "PATH": str(tmp_path), "SLURM_JOB_ID": "7"}


def test_outside_an_allocation_this_machine_is_used():
    assert find_nodes("auto", None, NO_GPUS) == local_nodes(None, NO_GPUS)


@pytest.mark.parametrize("source", ["auto", "local"])
def test_given_nodes_are_virtual_nodes_of_this_machine(source, in_job_without_slurm, caplog):
    assert find_nodes(source, "2,3", in_job_without_slurm) == local_nodes("2,3", {})
    assert caplog.messages == []


def test_local_does_not_look_for_an_allocation(in_job_without_slurm, caplog):
    assert find_nodes("local", None, in_job_without_slurm) == local_nodes(None, NO_GPUS)
    assert caplog.messages == []


def test_without_scontrol_this_machine_is_used_and_the_log_says_why(in_job_without_slurm, caplog):
    assert find_nodes("auto", None, in_job_without_slurm) == local_nodes(None, NO_GPUS)
    (message,) = caplog.messages
    assert message == "scontrol is not on $PATH, so Slurm cannot be queried; this machine alone is used"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1",
            "Slurm does not know job 7 (SLURM_JOB_ID); to use this machine alone, give --resources local or --nodes",
        ),
        (
            r"printf 'JobId=7 JobName=a\n   JobState=COMPLETED Reason=None\n'",
            "job 7 (SLURM_JOB_ID) does not run: it is COMPLETED; to use this machine alone, give --resources local or"
            " --nodes",
        ),
        (
            r"printf 'JobId=7 JobName=a\n   JobState=SUSPENDED Reason=None\n'",
            "job 7 (SLURM_JOB_ID) does not run: it is SUSPENDED; to use this machine alone, give --resources local or"
            " --nodes",
        ),
        (
            "echo 'scontrol: invalid option' >&2; exit 1",
            "`scontrol show job -d 7` failed: scontrol: invalid option; to use this machine alone, give --resources"
            " local or --nodes",
        ),
    ],
)
def test_this_machine_does_not_take_the_place_of_an_allocation_that_cannot_be_used(
    in_job_without_slurm: dict[str, str], tmp_path: Path, answer: str, said: str
):
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    with pytest.raises(ClusterError) as refusal:
        find_nodes("auto", None, in_job_without_slurm)
    assert str(refusal.value) == said
    assert find_nodes("auto", "2,3", in_job_without_slurm) == local_nodes("2,3", {})


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "there is no allocation here: SLURM_JOB_ID is not set"),
        ({"SLURM_JOB_ID": ""}, "SLURM_JOB_ID is not set"),
        ({"SLURM_JOB_ID": "-h"}, "SLURM_JOB_ID is '-h', which is no number of a job"),
        ({"SLURM_JOB_ID": "7", "PATH": "/nowhere"}, "scontrol is not on $PATH, so Slurm cannot be queried"),
        ({"SLURM_JOBID": "7", "PATH": "/nowhere"}, "scontrol is not on $PATH, so Slurm cannot be queried"),
    ],
)
def test_slurm_without_an_allocation_is_refused_with_a_sentence(environ: dict[str, str], said: str):
    with pytest.raises(ClusterError) as refusal:
        find_nodes("slurm", None, environ)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("--resources slurm: ")
    assert str(refusal.value).endswith("start inside sbatch or salloc, or leave the option out to use this machine")


def test_slurm_and_virtual_nodes_contradict_each_other():
    with pytest.raises(ClusterError, match="virtual nodes of this machine, --resources slurm takes real ones"):
        find_nodes("slurm", "4", {})


def allocation(*names: str) -> Allocation:
    return Allocation(
        ref=AllocationRef("7", "", "slurm"),
        specs=[NodeSpec(name, (0, 1), (), 100) for name in names],
        cpus=dict.fromkeys(names, (0, 1)),
        addresses={name: f"{name}.example" for name in names},
        end=None,
        layouts=dict.fromkeys(names, (2, 1)),
    )


@pytest.mark.parametrize(
    ("begin", "end", "names"),
    [
        (None, None, ["n1", "n2", "n3", "n4"]),
        (1, 3, ["n2", "n3"]),
        (2, None, ["n3", "n4"]),
        (None, 1, ["n1"]),
        (0, 4, ["n1", "n2", "n3", "n4"]),
    ],
)
def test_a_range_of_nodes_is_a_part_of_the_allocation(begin: int | None, end: int | None, names: list[str]):
    assert NodeRange(begin, end).of(allocation("n1", "n2", "n3", "n4")) == allocation(*names)


@pytest.mark.parametrize(("begin", "end"), [(4, None), (2, 2), (3, 1), (None, 5)])
def test_a_range_without_nodes_is_refused_with_a_sentence(begin: int | None, end: int | None):
    with pytest.raises(
        RangeError, match=r"^begin \d and end \d choose no part of the 4 nodes of allocation 7: 0 <= begin < end <= 4"
    ):
        NodeRange(begin, end).of(allocation("n1", "n2", "n3", "n4"))


def test_a_range_of_nodes_outside_an_allocation_is_refused():
    with pytest.raises(
        RangeError, match="^begin and end choose nodes of an allocation, but there is no allocation here"
    ):
        find_nodes("auto", None, NO_GPUS, NodeRange(end=2))


def test_messages_on_a_login_node_are_about_its_batch_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    memory = register(monkeypatch)
    (tmp_path / memory.queue.submit_program).touch(mode=0o755)
    with pytest.raises(RangeError, match=f"^begin and end choose nodes of an allocation, but {VARIABLE} is not set"):
        find_nodes("auto", None, {**NO_GPUS, "PATH": str(tmp_path)}, NodeRange(end=2))
