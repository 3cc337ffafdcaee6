from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from qcg.pilotjob.description import patterns
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.memory import parse_memory
from qcg.pilotjob.description.schema import request_file_schema
from qcg.pilotjob.description.walltime import parse_wall_time
from tests.description.helpers import parse, simple, standard
from tests.description.samples import BAC16, EVERYTHING, SLEEP

SCHEMA = request_file_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


TIMES = [
    *(
        "90",
        "90.5",
        "90s",
        "1h30m",
        "1d 2h 3m 4.25s",
        "2D",
        "01:30:00",
        "1-12:00:00",
        "PT1H30M",
        "p1dt2s",
        " 1h\n",
        "P2D",
    ),
    *("", " ", "P", "PT", "h", "1x", "-1", "1h-", "1:2:3", "1-24:00:00", "P1H", "1m1h", "1.5h", "1e3", "\u0661s"),
]
AMOUNTS = [
    *("2GB", "2 GB", "2g", "2GiB", "1.5G", "500M", "1025K", "1T", "1048576", "1048576B", " 2GB\n", "2048 kib"),
    *("", " ", "GB", "-1GB", "2 gigs", "1e9", "2GBB", "1,5G", "2  GB", "2Gi", "\u0662GB", "1.G"),
]


def is_accepted(parser: Callable[[str], object], text: str) -> bool:
    try:
        parser(text)
    except DescriptionError:
        return False
    return True


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
        {**standard(), "retry": "3"},
        {**standard(), "dependencies": {"afterok": ["b"]}},
        {**standard(), "priority": "high"},
        simple(retry={"on": ["time"]}),
        simple(retry={"on": "time"}),
        simple(retry={"on": []}),
        simple(retry={"on": {"exits": 2}}),
        simple(retry={"on": {}}),
        simple(retry={"on": {"exit": 2}, "max": 2}),
        simple(retry={"exit_codes": ["a"]}),
        simple(retry={"exit_codes": ["0"]}),
        simple(retry={"exit_codes": ["1-256"]}),
        simple(retry={"exit_codes": [0]}),
        simple(retry={"exit_codes": []}),
        simple(retry={"delay": "soon"}),
        simple(retry={"delay": -1}),
        simple(retry={"max_delay": ""}),
        simple(retry={"factor": 0.5}),
        simple(wt="1h", retry={"grow": {"wt": ["long"]}}),
        simple(wt="1h", retry={"grow": {"wt": []}}),
        simple(wt="1h", retry={"grow": {"wt": [0]}}),
        simple(mem="1GB", retry={"grow": {"mem": []}}),
        simple(mem="1GB", retry={"grow": {"mem": ["lots"]}}),
        simple(mem="1GB", retry={"grow": {"mem": [0]}}),
        simple(mem="1GB", retry={"grow": {"mem": [4096]}}),
        simple(retry={"grow": {"disk": 2}}),
        simple(priority=1.5),
        simple(hold="yes"),
        simple(afterany=3),
        simple(afternotok=[3]),
        simple(afterstart={"b": 1}),
        simple(mem="lots"),
        simple(mem=-1),
        simple(mem=512),
        simple(mem=1 << 60),
        standard(resources={"mem": "1,5G"}),
        simple(wt="soon"),
        simple(wt="P"),
        simple(wt=0),
        simple(named={"license": 0}),
        simple(named={"gpu": 1}),
        simple(named={"a b": 1}),
        simple(named=["license"]),
        simple(nodeCrs={"gpu": 1.5}),
        simple(nodeCrs={"gpu": -0.5}),
        simple(output="streams"),
        simple(output="stream", stdout="o"),
        standard(exec="x", output="stream", stderr="e"),
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
        [{"request": "setJob", "jobNames": "a"}],
        [{"request": "setJob", "jobNames": "a", "priority": None, "nodeCrs": {}}],
        [{"request": "setJob", "jobNames": "a", "hold": True}],
        [{"request": "setJob", "jobNames": "a", "mem": "lots"}],
        [{"request": "setJob", "priority": 1}],
        [{"request": "rerunJob"}],
        [{"request": "rerunJob", "states": ["SUCCEED"]}],
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
        simple(retry=0, priority=-5, hold=False),
        simple(retry={"on": "lost", "max": 4, "delay": 0, "max_delay": "1h", "factor": 1}),
        simple(retry={"on": {"exit": 1, "unstartable": 0}, "exit_codes": [1, "2", " 10 - 255 ", "007"], "max": None}),
        simple(wt="1h", mem="1GB", retry={"grow": {"wt": ["2h", 9000.5], "mem": [2 << 30, "4 GiB"], "numCores": 1.5}}),
        simple(afterany=["b", "b:1"], afternotok="c", afterstart=["d"]),
        simple(mem="1.5 gib", named={"license": 2, "Scratch_1.x-y": 1}, nodeCrs={"gpu": 0.125}),
        simple(nodeCrs={"GPU": 2.0}, mem=1 << 20),
        simple(output="stream", stdout=None, stderr=""),
        standard(exec="x", output="files", stdout="o"),
    ],
)
def test_everything_the_parser_accepts_is_valid(job: Any) -> None:
    parse(job)
    VALIDATOR.validate(submit(job))


@pytest.mark.parametrize("text", TIMES)
def test_the_pattern_of_wall_times_accepts_what_the_parser_accepts(text: str) -> None:
    accepted = is_accepted(parse_wall_time, text)
    assert (re.search(patterns.WALL_TIME["pattern"], text) is not None) == accepted


@pytest.mark.parametrize("text", AMOUNTS)
def test_the_pattern_of_memory_accepts_what_the_parser_accepts(text: str) -> None:
    assert (re.search(patterns.MEMORY["pattern"], text) is not None) == is_accepted(parse_memory, text)


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
