"""Input forms and the descriptions they are converted to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Amount, Execution, JobDescription, ModelOptions, ResourceRequest, Sharing
from qcg.pilotjob.description.parse import parse_jobs, simple_to_standard
from tests.description.helpers import CONTEXT, parse, parse_one, simple, standard


def test_the_smallest_job_gets_one_core() -> None:
    assert parse_one(standard()) == JobDescription(name="a", execution=Execution(exec="date"))


def test_both_forms_of_a_job_give_the_same_description() -> None:
    execution = {"exec": "x", "args": ["1", 2, 0.5], "env": {"A": 1, "B": 0.5}, "wd": "w", "model": "OpenMPI"}
    resources = {"numCores": {"min": 2, "max": 4}, "numNodes": 2, "nodeCrs": {"GPU": 1}, "wt": "1h"}
    one = {
        "name": "a",
        "iteration": {"stop": 3},
        "execution": execution,
        "resources": resources,
        "dependencies": {"after": ["b"]},
    }
    other = {"name": "a", "iteration": 3, "after": "b", **execution, **resources}
    assert parse_one(one) == parse_one(other)
    assert parse_one(one).execution.args == ("1", "2", "0.5")
    assert parse_one(one).execution.env == {"A": "1", "B": "0.5"}


def test_bytes_raw_json_and_dictionaries_are_parsed_alike() -> None:
    job = standard()
    raw = msgspec.json.encode(job)
    assert parse(job) == parse(raw) == parse(msgspec.Raw(raw))


def test_forms_can_be_mixed_in_one_submission() -> None:
    assert [job.name for job in parse(standard("one"), simple(name="two"), simple(name="three", script="true"))] == [
        "one",
        "two",
        "three",
    ]


def test_null_means_that_a_key_is_absent() -> None:
    execution = dict.fromkeys(Execution.__struct_fields__)
    nothing = dict.fromkeys(["iteration", "iterate", "resources", "dependencies", "attributes"])
    assert parse_one({"name": "a", "execution": {**execution, "exec": "date"}, **nothing}) == parse_one(standard())
    amount = dict.fromkeys(["exact", "max", "scheduler", "split-into"])
    assert parse_one(standard(resources={"numCores": {**amount, "min": 2}, "wt": None})).request.cores == Amount(
        2, None
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"modules": "a/1  b"}, {"modules": ("a/1", "b")}),
        ({"modules": ["a", "b c"]}, {"modules": ("a", "b c")}),
        ({"modules": ""}, {}),
        ({"modules": []}, {}),
        ({"modules": [""]}, {}),
        ({"venv": ""}, {}),
        ({"venv": "v"}, {"venv": "v"}),
        ({"model": "Threads"}, {"model": "threads"}),
        ({"model": "default", "model_opts": {}}, {}),
        (
            {"model_opts": {"mpirun": "m", "mpirun_args": ["-x", 1], "srun_args": ["--overlap"]}},
            {"model_opts": ModelOptions("m", ("-x", "1"), ("--overlap",))},
        ),
        ({"args": []}, {}),
        ({"stdin": "i", "stdout": "o", "stderr": "o"}, {"stdin": "i", "stdout": "o", "stderr": "o"}),
        ({"args": ["", " ", "a b", "ü\n"]}, {"args": ("", " ", "a b", "ü\n")}),
    ],
)
def test_an_execution_is_normalized(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert parse_one(standard(exec="x", **written)).execution == Execution(exec="x", **meant)


def test_a_script_may_have_an_environment_and_no_or_empty_arguments() -> None:
    assert parse_one(standard(script="env", env={"A": "b"}, args=[])).execution == Execution(
        script="env", env={"A": "b"}
    )


def test_a_string_is_one_argument_in_the_simple_form() -> None:
    assert parse_one(simple(args="a b")).execution.args == ("a b",)


@pytest.mark.parametrize(
    ("resources", "request_"),
    [
        ({}, ResourceRequest()),
        ({"numCores": 4}, ResourceRequest(cores=Amount(4, 4))),
        ({"numCores": {"exact": 4}}, ResourceRequest(cores=Amount(4, 4))),
        ({"numCores": {"min": 2}}, ResourceRequest(cores=Amount(2, None))),
        ({"numCores": {"max": 5}}, ResourceRequest(cores=Amount(1, 5))),
        ({"numCores": {"min": 2, "max": 5}}, ResourceRequest(cores=Amount(2, 5))),
        ({"numCores": {"min": 5, "max": 5}}, ResourceRequest(cores=Amount(5, 5))),
        ({"numNodes": 2}, ResourceRequest(cores=None, nodes=Amount(2, 2))),
        ({"numNodes": {"min": 1, "max": 2}}, ResourceRequest(cores=None, nodes=Amount(1, 2))),
        ({"numNodes": 2, "numCores": 3}, ResourceRequest(cores=Amount(3, 3), nodes=Amount(2, 2))),
        ({"nodeCrs": {"gpu": 2}}, ResourceRequest(gpus=2, one_node=True)),
        ({"nodeCrs": {"Mem": 512}, "numCores": 2}, ResourceRequest(cores=Amount(2, 2), memory=512, one_node=True)),
        ({"nodeCrs": {"GPU": 1}, "numNodes": 2}, ResourceRequest(cores=None, nodes=Amount(2, 2), gpus=1)),
        ({"nodeCrs": {}}, ResourceRequest()),
        ({"wt": "1m"}, ResourceRequest()),
    ],
)
def test_resources_are_normalized(resources: dict[str, Any], request_: ResourceRequest) -> None:
    assert parse_one(standard(resources=resources)).request == request_


@pytest.mark.parametrize("resources", [None, {"numCores": 1}, {"numNodes": {"max": 3}, "numCores": 1}])
def test_the_threads_model_stays_on_one_node(resources: Any) -> None:
    request = parse_one(standard(resources=resources, exec="x", model="threads")).request
    assert request.one_node
    assert request.nodes in (None, Amount(1, 1))


def test_a_wall_time_is_stored_in_seconds() -> None:
    assert parse_one(standard(resources={"wt": "1h30m"})).wall_time == 5400
    assert parse_one(simple(wt=90)).wall_time == 90


@pytest.mark.parametrize(
    ("amount", "least", "name", "parts"),
    [
        ({"split-into": 2}, 1, "split-into", 2),
        ({"split-into": 2, "min": 3}, 3, "split-into", 2),
        ({"scheduler": {"name": "split-into", "params": {"parts": 2}}}, 1, "split-into", 2),
        ({"scheduler": {"name": "Split-Into"}}, 1, "split-into", None),
        ({"scheduler": "split-into"}, 1, "split-into", None),
        ({"scheduler": {"name": "MAXIMUM-iters", "params": {}}, "min": 2}, 2, "maximum-iters", None),
        ({"scheduler": "maximum-iters"}, 1, "maximum-iters", None),
    ],
)
@pytest.mark.parametrize(("key", "of"), [("numCores", "cores"), ("numNodes", "nodes")])
def test_an_iteration_scheduler_is_stored_until_the_total_is_known(
    amount: Any, least: int, name: Any, parts: int | None, key: str, of: Any
) -> None:
    description = parse_one({**standard(resources={key: amount}), "iteration": 4})
    assert description.sharing == Sharing(name, of, parts)
    wanted = description.request.cores if of == "cores" else description.request.nodes
    assert wanted == Amount(least, None)


def test_attributes_are_stored_unchanged() -> None:
    attributes = {"a": [1, 2.5, None, True, {"ü": "x"}], "n": -(2**63), "m": 2**64 - 1}
    assert parse_one({**standard(), "attributes": attributes}).attributes == attributes


def test_an_accepted_description_survives_encoding() -> None:
    (description,) = parse({**standard(resources={"numNodes": {"scheduler": "maximum-iters"}}), "iteration": [1, "x"]})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(description), type=JobDescription) == description


def test_the_simple_form_is_converted_to_the_standard_form() -> None:
    written = simple(
        args="x",
        env={"A": "1"},
        numCores=2,
        numNodes={"min": 1},
        wt="1m",
        iteration=[1, 2],
        after="b",
        nodeCrs={"gpu": 1},
    )
    assert simple_to_standard(written) == {
        "name": "a",
        "iteration": {"values": [1, 2]},
        "execution": {"exec": "date", "args": ["x"], "env": {"A": "1"}},
        "resources": {"numCores": {"exact": 2}, "numNodes": {"min": 1}, "nodeCrs": {"gpu": 1}, "wt": "1m"},
        "dependencies": {"after": ["b"]},
    }
    assert simple_to_standard(simple(iteration=3, after=("x", "y"), numCores={"scheduler": "split-into"})) == {
        "name": "a",
        "iteration": {"start": 0, "stop": 3},
        "execution": {"exec": "date"},
        "resources": {"numCores": {"scheduler": "split-into"}},
        "dependencies": {"after": ["x", "y"]},
    }


@pytest.mark.parametrize(
    "job",
    [
        simple(),
        simple(script="true", env={"A": 1}),
        simple(
            iterate=[1, 5, 2], numCores={"split-into": 2, "min": 1}, modules="a b", after=["x", "y:1"], model="threads"
        ),
        simple(iteration={"stop": 3}, model_opts={"mpirun": "m"}, stdin="i", stdout="o", stderr="e", wd="w", venv="v"),
    ],
)
def test_the_converted_form_gives_the_same_description(job: dict[str, Any]) -> None:
    assert parse(simple_to_standard(job)) == parse(job)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (simple(numCore=2), 'job.numCore: unknown key; did you mean "numCores"?'),
        (simple(numCores={"mni": 2}), 'job.numCores.mni: unknown key; did you mean "min"?'),
        ({"exec": "x"}, 'job: the key "name" is missing'),
        (standard(), "job.execution: unknown key; that is the standard form: in a program, use add_std"),
    ],
)
def test_an_invalid_simple_form_is_not_converted(job: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DescriptionError) as error:
        simple_to_standard(job)
    assert str(error.value).startswith(sentence)


def test_an_empty_submission_has_no_problems() -> None:
    assert parse_jobs([], CONTEXT) == []
