"""Types of command-line options."""

from __future__ import annotations

import click
import pytest

from qcg.pilotjob.cli.param_types import GpuCount, NodeSource
from qcg.pilotjob.cluster.registry import resource_names, sources_of_files


@pytest.mark.parametrize("value", ["none", "local:x", "slurm:hosts"])
def test_unknown_resources_are_refused_with_all_choices(value: str):
    with pytest.raises(click.BadParameter) as refused:
        NodeSource().convert(value, None, None)
    choices = [*resource_names(), *(f"{name}:FILE" for name in sources_of_files())]
    assert refused.value.message == f"{value!r} is not one of {', '.join(map(repr, choices))}."


def test_a_source_of_nodes_is_a_name_or_a_name_with_a_file():
    assert NodeSource().convert("local", None, None) == "local"
    assert NodeSource().convert("hostfile:/etc/hosts.qcg", None, None) == "hostfile:/etc/hosts.qcg"
    with pytest.raises(click.BadParameter, match="hostfile needs a file: --resources hostfile:FILE"):
        NodeSource().convert("hostfile:", None, None)


@pytest.mark.parametrize(("text", "meant"), [("2", 2), ("2.0", 2), ("0.5", 0.5), ("0.125", 0.125)])
def test_gpus_are_whole_or_a_part_of_one(text: str, meant: float):
    number = GpuCount().convert(text, None, None)
    assert (number, type(number)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *[
            (text, f"{text!r} is not a number of GPUs; write it as 2, or as a part of one such as 0.5")
            for text in ("two", "0", "-1", "nan", "inf", "1e400", "99999999999")
        ],
        ("1.5", "1.5 GPUs cannot be given; ask for a whole number of GPUs, or for a part of one such as 0.5"),
        ("0.3333", "0.3333 of a GPU cannot be given; use at most three decimals"),
    ],
)
def test_other_numbers_of_gpus_are_refused(text: str, sentence: str):
    with pytest.raises(click.BadParameter) as refused:
        GpuCount().convert(text, None, None)
    assert refused.value.message == sentence
