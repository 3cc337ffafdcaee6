"""Types of command-line options."""

from __future__ import annotations

import click
import pytest

from qcg.pilotjob.cli.param_types import NodeSource
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
