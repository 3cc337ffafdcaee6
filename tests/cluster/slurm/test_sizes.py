"""The largest allocation that options of `sbatch` can give."""

from __future__ import annotations

import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.sizes import UNKNOWN, largest_allocation


def size(*options: str, largest: tuple[int, int] | None = (64, 256_000)) -> tuple[int, int, int, int]:
    """Nodes, and cores, GPUs and MiB of each."""
    nodes = largest_allocation(["--nodes=2", *options], largest)
    [each] = {(len(node.cores), len(node.gpus), node.memory) for node in nodes}
    return (len(nodes), *each)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), (2, 64, 0, 256_000)),
        (("--nodes=2-5",), (5, 64, 0, 256_000)),
        (("--ntasks-per-node=8", "--mem=16G"), (2, 8, 0, 16384)),
        (("--ntasks-per-node=8", "--cpus-per-task=4"), (2, 64, 0, 256_000)),
        (("--mem=0",), (2, 64, 0, 256_000)),
        (("--mem=4000",), (2, 64, 0, 4000)),
        (("--gpus-per-node=2",), (2, 64, 2, 256_000)),
        (("--gpus-per-node=a100:4",), (2, 64, 4, 256_000)),
        (("--gres=gpu:3,shard:9",), (2, 64, 3, 256_000)),
        (("--gres=gpu:a100:2",), (2, 64, 2, 256_000)),
        (("--gres=gpu",), (2, 64, 1, 256_000)),
        (("-G4",), (2, 64, UNKNOWN, 256_000)),
    ],
)
def test_the_largest_allocation_follows_from_the_options_and_the_largest_node(
    options: tuple[str, ...], expected: tuple[int, ...]
):
    assert size(*options) == expected


def test_without_information_about_nodes_no_job_is_refused_for_its_cores():
    assert size(largest=None) == (2, UNKNOWN, 0, 0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--nodes=few", "write 4, 2-4, or 2x4"),
        (f"--nodes={'9' * 5000}", "write 4, 2-4, or 2x4"),
        ("--mem=much", "write 4000M, or 4G"),
        (f"--mem={'9' * 5000}G", "write 4000M, or 4G"),
    ],
)
def test_an_invalid_size_is_refused(option: str, message: str):
    with pytest.raises(BatchError, match=message):
        size(option)
