"""Job descriptions built from a command line."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.cli.job_from_argv import JobOptionError, amount, generate_name, input_pattern, job_from_arguments


@pytest.mark.parametrize(
    ("text", "meant"),
    [(None, None), ("4", {"exact": 4}), ("2-4", {"min": 2, "max": 4}), ("2-", {"min": 2})],
)
def test_numbers_of_cores_and_nodes(text: str | None, meant: dict[str, int] | None):
    assert amount("--cores", text) == meant


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [("a.csv", "data/a.csv"), ("*/b", "data/*/b"), ("model/", "data/model/"), ("../c", "c"), ("/home/me/e", "e")],
)
def test_inputs_are_named_as_the_manager_finds_them(pattern: str, meant: str):
    assert input_pattern(pattern, "/home/me/data", "/home/me") == meant


@pytest.mark.parametrize("pattern", ["../../d/", "/x/y"])
def test_an_input_outside_the_working_directory_of_the_manager_is_refused(pattern: str):
    with pytest.raises(JobOptionError, match="is not below /home/me, the working directory of the manager"):
        input_pattern(pattern, "/home/me/data", "/home/me")


@pytest.mark.parametrize("text", ["", "two", "-3", "1-2-3", "2.5", "9" * 5000, "2-" + "9" * 5000, "٣"])
def test_a_value_that_is_no_number_is_refused_with_the_option(text: str):
    with pytest.raises(JobOptionError, match="--cores .* is not a number"):
        amount("--cores", text)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, {}),
        ({"cores": "2"}, {"resources": {"numCores": {"exact": 2}}}),
        ({"nodes": "1-"}, {"resources": {"numNodes": {"min": 1}}}),
        ({"nodes": "2x4"}, {"resources": {"numCores": {"exact": 4}, "numNodes": {"exact": 2}}}),
        ({"wall_time": "1h"}, {"resources": {"wt": "1h"}}),
        ({"gpus": 2}, {"resources": {"nodeCrs": {"gpu": 2}}}),
        ({"gpus": 0.5, "mem": "1GB"}, {"resources": {"nodeCrs": {"gpu": 0.5}, "mem": "1GB"}}),
        ({"named": ["license=1", "fpga=2"]}, {"resources": {"named": {"fpga": 2, "license": 1}}}),
        ({"after": ["a,b", "c:3"]}, {"dependencies": {"after": ["a", "b", "c:3"]}}),
        ({"iteration": 3}, {"iteration": 3}),
        ({"retry": "2", "priority": -1, "hold": True}, {"retry": 2, "priority": -1, "hold": True}),
        ({"retry": '{"on": ["exit"]}', "priority": 0, "hold": False}, {"retry": {"on": ["exit"]}, "priority": 0}),
    ],
)
def test_options_become_keys(options: dict[str, Any], keys: dict[str, Any]):
    execution = {"exec": "prog", "args": ["-c", "--", "x y"]}
    assert job_from_arguments(["prog", "-c", "--", "x y"], "n", **options) == {
        "name": "n",
        "execution": execution,
        **keys,
    }


def test_files_and_variables_belong_to_the_execution():
    job = job_from_arguments(["prog"], "n", env=["A=1", "B=x=y", "C="], wd="/d", stdin=None, stdout="o", stderr=None)
    assert job["execution"] == {
        "exec": "prog",
        "args": [],
        "wd": "/d",
        "stdout": "o",
        "env": {"A": "1", "B": "x=y", "C": ""},
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": "2x4", "cores": "4"}, "--nodes 2x4 says how many cores the job has on each node: leave out --cores"),
        ({"nodes": "2x"}, "--cores '' is not a number"),
        ({"nodes": "x4"}, "--nodes '' is not a number"),
    ],
)
def test_nodes_by_cores_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str):
    with pytest.raises(JobOptionError, match=sentence):
        job_from_arguments(["prog"], "n", **options)


def test_output_in_streams_belongs_to_the_execution():
    job = job_from_arguments(["prog"], "n", stream_output=True, wd="/d", stdout=None)
    assert job["execution"] == {"exec": "prog", "args": [], "wd": "/d", "output": "stream"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stdout": "o"}, "--stream-output and --stdout exclude each other; give one of them"),
        ({"stderr": "e"}, "--stream-output and --stderr exclude each other; give one of them"),
        ({"remote": {"host": "*"}}, "--stream-output is not possible for jobs on remote hosts"),
    ],
)
def test_output_goes_to_streams_or_elsewhere(options: dict[str, Any], sentence: str):
    with pytest.raises(JobOptionError, match=sentence):
        job_from_arguments(["prog"], "n", stream_output=True, **options)


def test_an_amount_of_nothing_is_refused_with_its_option():
    with pytest.raises(JobOptionError, match="^--cores '0': must be at least 1$"):
        job_from_arguments(["prog"], "n", cores="0")


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["license"], '--named: "license" is not a name with a whole number; write license=4'),
        (["license=0"], '--named: "license" cannot count 0'),
        (["gpu=1"], '--named: "gpu" is no name for a resource of your own'),
        (["license=1", "license=2"], '--named: "license" is given twice'),
    ],
)
def test_named_resources_that_cannot_be_are_refused(texts: list[str], sentence: str):
    with pytest.raises(JobOptionError, match=sentence):
        job_from_arguments(["prog"], "n", named=texts)


@pytest.mark.parametrize("text", ["A", "=1", ""])
def test_a_variable_without_name_or_value_is_refused(text: str):
    with pytest.raises(JobOptionError, match="write NAME=VALUE"):
        job_from_arguments(["prog"], "n", env=[text])


@pytest.mark.parametrize(
    ("program", "name"), [("/bin/date", "date-7"), ("./my prog:1", "my_prog_1-7"), ("/", "job-7"), ("a.sh", "a.sh-7")]
)
def test_a_generated_name_starts_with_the_program(program: str, name: str):
    assert generate_name(program, "7") == name


def test_a_generated_name_is_not_too_long_for_a_job():
    assert generate_name("ü" * 120, "7") == "ü" * 50 + "-7"
