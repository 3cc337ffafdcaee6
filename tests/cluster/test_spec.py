"""Numbers in the description of an allocation."""

from __future__ import annotations

import msgspec
import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.spec import AllocationSpec


def test_a_spec_gives_numbers_for_the_text_of_the_command_line():
    spec = AllocationSpec("2-4", limit="1h30m", gpus_per_node="a100:2", mem="16G")
    assert (spec.nodes_min, spec.nodes_max) == (2, 4)
    assert spec.limit_seconds == 5400
    assert (spec.gpu_type, spec.gpu_count) == ("a100", 2)
    assert spec.memory_mib == 16384


def test_a_spec_without_options_is_one_node_of_any_size():
    spec = AllocationSpec()
    assert (spec.nodes_min, spec.nodes_max, spec.gpu_type, spec.gpu_count) == (1, 1, "", 0)
    assert spec.limit_seconds is None
    assert spec.memory_mib is None


def test_no_limit_and_all_memory_can_be_asked_for():
    spec = AllocationSpec("3", limit="unlimited", gpus_per_node="1", mem="0")
    assert (spec.nodes_min, spec.nodes_max) == (3, 3)
    assert (spec.limit_seconds, spec.memory_mib) == (None, 0)
    assert (spec.gpu_type, spec.gpu_count) == ("", 1)


@pytest.mark.parametrize(
    ("spec", "name", "message"),
    [
        (AllocationSpec("0"), "nodes_max", "--nodes '0' is no number of nodes; write 4, 2-4, or 2x4"),
        (AllocationSpec("2-"), "nodes_min", "--nodes '2-' is no number of nodes"),
        (AllocationSpec(limit="soon"), "limit_seconds", "--time 'soon' is not a time"),
        (AllocationSpec(gpus_per_node="a100"), "gpu_count", "--gpus-per-node 'a100' is no number of GPUs; write 2"),
        (AllocationSpec(mem="much"), "memory_mib", "--mem 'much' is no amount of memory; write 4000M, or 4G"),
    ],
)
def test_text_without_a_number_is_refused_with_the_name_of_the_option(spec: AllocationSpec, name: str, message: str):
    with pytest.raises(BatchError) as refused:
        getattr(spec, name)
    assert message in str(refused.value)


def test_submissions_of_earlier_versions_are_read():
    stored = b'{"nodes":"2-4","cores":4,"limit":"1h","gpus_per_node":"2","mem":"4000M","most":3,"further":["--hold"]}'
    spec = msgspec.json.decode(stored, type=AllocationSpec)
    assert (spec.nodes_max, spec.limit_seconds, spec.gpu_count, spec.memory_mib) == (4, 3600, 2, 4000)
    assert msgspec.json.encode(spec) == stored
