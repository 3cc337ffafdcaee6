"""Where nodes come from, and what is said where they cannot. Tests inside real allocations are in `tests/slurm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.cluster.find import find_nodes
from qcg.pilotjob.cluster.local import local_nodes

NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def in_job_without_slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job, on a machine where there is no Slurm: in a container, say."""
    return {**NO_GPUS, "PATH": str(tmp_path), "SLURM_JOB_ID": "7"}


def test_outside_an_allocation_it_is_this_machine():
    assert find_nodes("auto", None, NO_GPUS) == local_nodes(None, NO_GPUS)


@pytest.mark.parametrize("source", ["auto", "local"])
def test_nodes_that_are_given_are_local_ones(source, in_job_without_slurm, caplog):
    assert find_nodes(source, "2,3", in_job_without_slurm) == local_nodes("2,3", {})
    assert caplog.messages == []


def test_local_does_not_look_for_an_allocation(in_job_without_slurm, caplog):
    assert find_nodes("local", None, in_job_without_slurm) == local_nodes(None, NO_GPUS)
    assert caplog.messages == []


def test_without_scontrol_it_is_this_machine_and_the_log_says_why(in_job_without_slurm, caplog):
    assert find_nodes("auto", None, in_job_without_slurm) == local_nodes(None, NO_GPUS)
    (message,) = caplog.messages
    assert message == "there is no program scontrol on $PATH, so that Slurm cannot be asked; this machine alone is used"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "there is no allocation here: SLURM_JOB_ID is not set"),
        ({"SLURM_JOB_ID": ""}, "SLURM_JOB_ID is not set"),
        ({"SLURM_JOB_ID": "-h"}, "SLURM_JOB_ID is '-h', which is no number of a job"),
        ({"SLURM_JOB_ID": "7", "PATH": "/nowhere"}, "no program scontrol on $PATH"),
        ({"SLURM_JOBID": "7", "PATH": "/nowhere"}, "no program scontrol on $PATH"),
    ],
)
def test_slurm_without_an_allocation_is_refused_with_a_sentence(environ: dict[str, str], said: str):
    with pytest.raises(ClusterError) as refusal:
        find_nodes("slurm", None, environ)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("--resources slurm: ")
    assert str(refusal.value).endswith("start inside sbatch or salloc, or leave the option out to use this machine")


def test_slurm_and_pretended_nodes_contradict_each_other():
    with pytest.raises(ClusterError, match="--nodes makes up nodes of this machine, --resources slurm takes real ones"):
        find_nodes("slurm", "4", {})
