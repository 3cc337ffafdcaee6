"""Named resources and parts of GPUs in job descriptions and options."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.description.counters import parse_options
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import ExtraResources, ResourceRequest
from tests.description.helpers import parse, standard
from tests.description.helpers import simple as simple_form


def request_of(resources: dict[str, Any], *, simple: bool = False) -> ResourceRequest:
    return parse(simple_form(**resources) if simple else standard(resources=resources))[0].request


@pytest.mark.parametrize("simple", [True, False])
@pytest.mark.parametrize(
    ("resources", "own", "gpus", "one_node"),
    [
        ({"named": {"license": 2, "fpga": 1}}, ExtraResources(0, (), (("fpga", 1), ("license", 2))), 0, False),
        ({"nodeCrs": {"gpu": 0.5}}, ExtraResources(500), 0, True),
        ({"nodeCrs": {"gpu": 0.333}, "named": {"a": 1}}, ExtraResources(333, (), (("a", 1),)), 0, True),
        ({"nodeCrs": {"gpu": 2.0}}, None, 2, True),
        ({"nodeCrs": {"gpu": 2}, "named": {}}, None, 2, True),
        ({"numNodes": 2, "nodeCrs": {"gpu": 0.001}}, ExtraResources(1), 0, False),
    ],
)
def test_named_resources_and_parts_of_gpus_are_understood(
    resources: dict[str, Any], own: ExtraResources | None, gpus: int, one_node: bool, simple: bool
) -> None:
    request = request_of(resources, simple=simple)
    assert (request.extra, request.gpus, request.one_node) == (own, gpus, one_node)


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (
            {"nodeCrs": {"gpu": 1.5}},
            "nodeCrs.gpu: 1.5 GPUs cannot be given; ask for a whole number of GPUs, or for a part of one such as 0.5",
        ),
        ({"nodeCrs": {"gpu": 0.3333}}, "nodeCrs.gpu: 0.3333 of a GPU cannot be given; use at most three decimals"),
        ({"nodeCrs": {"gpu": -0.5}}, "nodeCrs.gpu: must be more than 0 and at most 2147483647"),
        ({"nodeCrs": {"gpu": 1e300}}, "nodeCrs.gpu: must be more than 0 and at most 2147483647"),
        ({"nodeCrs": {"mem": 10.5}}, "nodeCrs.mem: must be a whole number of MiB"),
        ({"named": {"gpu": 1}}, 'named.gpu: "gpu" is no name for a resource of your own; choose another name'),
        (
            {"named": {"a b": 1}},
            "named.a b: \"a b\" is no name for a resource; use letters, digits, '_', '-' and '.', and begin with a"
            " letter",
        ),
        ({"named": {"license": 0}}, "named.license: must be at least 1"),
        ({"named": {"license": 0.5}}, "named.license: must be a whole number, not a fraction"),
    ],
)
def test_other_numbers_and_names_are_refused(resources: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        request_of(resources)
    assert str(caught.value) == f"jobs[0].resources.{sentence}"


def test_options_name_counters_of_the_run_and_of_nodes() -> None:
    assert parse_options(["license=4", "fpga=2/node", "a.b-c=1"]) == ((("a.b-c", 1), ("license", 4)), (("fpga", 2),))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["license"], '"license" is not a name with a whole number; write license=4'),
        (["license=0.5"], '"license=0.5" is not a name with a whole number; write license=4'),
        (["license=-1"], '"license" cannot count -1; give it 1 to 2,147,483,647'),
        (
            ["license=4/nod"],
            '"license=4/nod" ends with "/nod"; write license=4 for the whole run, or license=4/node for as many on each'
            " node",
        ),
        (["license=0"], '"license" cannot count 0; give it 1 to 2,147,483,647'),
        (["license=1", "license=2/node"], '"license" is given twice'),
        (["cores=4"], '"cores" is no name for a resource of your own; choose another name'),
    ],
)
def test_other_options_are_refused(given: list[str], sentence: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        parse_options(given)
    assert str(caught.value) == sentence
