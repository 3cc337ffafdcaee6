from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from qcg.pilotjob.description.schema import request_file_schema
from tests.description.helpers import parse, simple, standard
from tests.description.samples import BAC16, EVERYTHING, SLEEP

SCHEMA = request_file_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def submit(*jobs: Any) -> list[Any]:
    return [{"request": "submit", "jobs": list(jobs)}]


def test_the_schema_is_valid_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", [SLEEP, BAC16, EVERYTHING, [], SLEEP[0]])
def test_documented_request_files_are_valid(file: Any) -> None:
    VALIDATOR.validate(file)


@pytest.mark.parametrize(
    "job",
    [
        standard(exec="x", arg=[]),
        standard(exec="x", script="y"),
        standard(wd="x"),
        standard(exec="x", args="y"),
        standard(exec="x", model="openmp"),
        standard(exec="x", model_opts={"srun_opts": []}),
        standard(resources={"numCores": "2"}),
        standard(resources={"numCores": 0}),
        standard(resources={"numCores": {}}),
        standard(resources={"numCores": {"exact": 1, "min": 1}}),
        standard(resources={"numCores": {"exact": 1, "split-into": 1}}),
        standard(resources={"numCores": {"max": 1, "scheduler": "split-into"}}),
        standard(resources={"numCores": {"scheduler": "maximum"}}),
        standard(resources={"nodeCrs": {"gpus": 1}}),
        standard(resources={"nodeCrs": {"gpu": 0}}),
        {**standard(), "iterate": [1]},
        {**standard(), "iteration": "3"},
        {**standard(), "iteration": {}},
        {**standard(), "iteration": {"start": 1}},
        {**standard(), "iteration": {"stop": 3, "values": [1]}},
        {**standard(), "iteration": {"start": 3, "indices": [1]}},
        {**standard(), "iteration": {"file": "a.csv", "zip": {"T": [1]}}},
        {**standard(), "iteration": {"product": {"T": 1}}},
        {**standard(), "iteration": {"product": [1]}},
        {**standard(), "iteration": {"indices": ["1"]}},
        {**standard(), "iteration": {"file": 3}},
        {**standard(), "dependencies": ["a"]},
        {"execution": {"exec": "x"}},
        {"name": "a"},
        simple(exec="x", script="y"),
        simple(numCore=1),
        "a",
    ],
)
def test_a_typical_mistake_in_a_job_is_not_valid(job: Any) -> None:
    assert not VALIDATOR.is_valid(submit(job))


@pytest.mark.parametrize(
    "file",
    [
        {},
        [{}],
        [{"request": "sumbit", "jobs": []}],
        [{"request": "submit"}],
        [{"request": "submit", "jobs": []}],
        [{"request": "control", "command": "finish"}],
        [{"request": "cancelJob"}],
        [{"request": "jobInfo", "jobNames": "a", "params": {"withChild": True}}],
        [{"request": "finish", "now": True}],
    ],
)
def test_a_typical_mistake_in_a_request_is_not_valid(file: Any) -> None:
    assert not VALIDATOR.is_valid(file)


@pytest.mark.parametrize(
    "job",
    [
        standard(exec="x", model="OpenMPI", script=None),
        standard(resources={"numCores": {"exact": None, "min": 1}, "nodeCrs": {"GPU": 1}, "wt": 5}),
        {**standard(resources={"numNodes": {"scheduler": "Maximum-Iters"}}), "iteration": ["a"]},
        simple(iteration={"values": [1]}, after=["b", "b:1"]),
        simple(iteration={"indices": [31, 133]}),
        simple(iteration={"file": "params.csv", "zip": None}),
        simple(iteration={"product": {"T": [250, None], "p": [{"x": 1}]}}),
        simple(iteration={"zip": {"T": [250, "x"]}}),
        simple(iteration={"start": 1, "stop": 5, "step": 2}),
    ],
)
def test_everything_the_parser_accepts_is_valid(job: Any) -> None:
    parse(job)
    VALIDATOR.validate(submit(job))


def properties(schema: Any) -> list[tuple[str, Any]]:
    found = []
    for name, form in schema["$defs"].items():
        assert form["title"]
        assert form["description"]
        found += [(f"{name}.{key}", entry) for key, entry in form["properties"].items() if key != "request"]
    return found


@pytest.mark.parametrize(("place", "entry"), properties(SCHEMA))
def test_every_key_is_described(place: str, entry: dict[str, Any]) -> None:
    assert entry["description"].endswith("."), place
