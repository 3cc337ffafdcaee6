"""Saved output of failed jobs in an allocation, in a directory that every node sees."""

from __future__ import annotations

import pytest

from tests.slurm.allocation_run import AllocationRun
from tests.support.mpi import ENVIRONMENT
from tests.support.pilot import job
from tests.support.slurm_cluster import Cluster

ALL_FAIL = (
    "echo rank on $(hostname); touch {0}.$(hostname); until [ $(ls {0}.n* | wc -l) -ge 2 ]; do sleep 0.05; done; exit 3"
)
"""The first rank that fails may end the others: all ranks have written by then."""

MODELS = {"openmpi": {"mpirun": "mpirun.openmpi"}, "srunmpi": {}}


@pytest.mark.timeout(180)
def test_the_output_of_failed_jobs_is_saved_on_every_node_and_for_multinode_jobs(cluster: Cluster):
    spanning = [
        job(
            model,
            script=ALL_FAIL.format(model),
            model=model,
            model_opts=options,
            env=ENVIRONMENT,
            numNodes=2,
            numCores=1,
        )
        for model, options in MODELS.items()
    ]
    plain = job("plain", script="echo on $(hostname) >&2; exit 1", numNodes=1, numCores=4, iteration=4)
    run = AllocationRun(cluster, [*spanning, plain])
    done = run.wait()
    assert set(done.states.values()) == {"FAILED"}
    out = run.run_dir / "out"
    for model in MODELS:
        lines = (out / f"{model}.out").read_text().splitlines()
        assert len({line for line in lines if line.startswith("rank on n")}) == 2, (model, lines)
    on = [(out / f"plain.{index}.err").read_text() for index in range(4)]
    assert all(text.startswith("on n") for text in on), on
    assert "the end of" in run.job.output
