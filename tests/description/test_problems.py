"""Invalid descriptions, with the paths and messages of their problems."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.description.errors import DescriptionError, Problem
from qcg.pilotjob.description.parse import parse_jobs
from tests.description.helpers import CONTEXT, parse, parse_one, problems_of, simple, standard

NO_EXECUTION = (
    'the key "execution" is missing; it defines what to start: {"exec": "PROGRAM", "args": ["ARGUMENT"]}, or'
    ' {"script": "TEXT"}'
)


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (standard(exec="x", arg=[]), 'jobs[0].execution.arg: unknown key; did you mean "args"?'),
        ({**standard(), "resource": {}}, 'jobs[0].resource: unknown key; did you mean "resources"?'),
        (standard(resources={"numcores": 2}), 'jobs[0].resources.numcores: unknown key; did you mean "numCores"?'),
        (
            standard(resources={"nodeCrs": {"gpus": 2}}),
            'jobs[0].resources.nodeCrs.gpus: unknown key; did you mean "gpu"?',
        ),
        (
            standard(resources={"nodeCrs": {"disk": 2}}),
            "jobs[0].resources.nodeCrs.disk: unknown key; known here: gpu, mem",
        ),
        ({**standard(), "dependencies": {"afte": []}}, 'jobs[0].dependencies.afte: unknown key; did you mean "after"?'),
        ({**standard(), "exec": "x"}, 'jobs[0].exec: unknown key; it belongs inside "execution"'),
        ({**standard(), "after": "x"}, 'jobs[0].after: unknown key; it belongs inside "dependencies"'),
        ({**standard(), "wt": "1h"}, 'jobs[0].wt: unknown key; it belongs inside "resources"'),
        (
            standard(exec="x", output="stream", stdout="o"),
            'jobs[0].execution.output: "stream" collects stdout and stderr, and excludes a file for "stdout"; give one'
            " of them",
        ),
        (
            simple(output="stream", stderr="e"),
            'jobs[0].output: "stream" collects stdout and stderr, and excludes a file for "stderr"; give one of them',
        ),
        (standard(exec="x", output="file"), 'jobs[0].execution.output: unknown value "file"; did you mean "files"?'),
        (
            simple(output="stream", host="wizard"),
            "jobs[0].output: output of jobs on a remote host stays in files there; leave it out, and see: qcg-pm logs",
        ),
        (simple(deps=["b"]), 'jobs[0].deps: unknown key; did you mean "after"?'),
        (simple(dependson=["b"]), 'jobs[0].dependson: unknown key; did you mean "after"?'),
        (
            simple(Dependancies={"after": ["b"]}),
            'jobs[0].Dependancies: unknown key; did you mean "dependencies"? In the simple form it is "after"',
        ),
        (
            simple(resorces={"numCores": 2}),
            'jobs[0].resorces: unknown key; did you mean "resources"? In the simple form its keys, such as numCores,'
            " are top-level keys",
        ),
        ({"name": "a", "command": "ls"}, 'jobs[0].command: unknown key; did you mean "exec"?'),
        (standard(command="ls"), 'jobs[0].execution.command: unknown key; did you mean "exec"?'),
        (
            {**standard(), "command": "ls"},
            'jobs[0].command: unknown key; did you mean "exec"? It belongs inside "execution".',
        ),
        (
            {**standard(), "deps": ["b"]},
            'jobs[0].deps: unknown key; did you mean "after"? It belongs inside "dependencies".',
        ),
        ({**standard(), "dependencies": {"deps": []}}, 'jobs[0].dependencies.deps: unknown key; did you mean "after"?'),
        (standard(resources={"cores": 2}), 'jobs[0].resources.cores: unknown key; did you mean "numCores"?'),
        (simple(numCores={"exct": 1}), 'jobs[0].numCores.exct: unknown key; did you mean "exact"?'),
        (
            simple(numCores={"scheduler": {"name": "split-into", "params": {"part": 2}}}),
            'jobs[0].numCores.scheduler.params.part: unknown key; did you mean "parts"?',
        ),
        (
            standard(exec="x", model_opts={"srun_opts": []}),
            'jobs[0].execution.model_opts.srun_opts: unknown key; did you mean "srun_args"?',
        ),
        (standard(exec=5), "jobs[0].execution.exec: must be a string, not a number"),
        (standard(exec="x", args="y"), "jobs[0].execution.args: must be an array, not a string"),
        (standard(exec="x", args=["y", None]), "jobs[0].execution.args[1]: must be a string or a number, not null"),
        (standard(exec="x", args=[True]), "jobs[0].execution.args[0]: must be a string or a number, not true"),
        (standard(exec="x", env={"A": []}), "jobs[0].execution.env.A: must be a string or a number, not an array"),
        (
            standard(exec="x", env=["A=b"]),
            'jobs[0].execution.env: must be an object, not an array, such as {"OMP_NUM_THREADS":"4"}',
        ),
        (
            simple(exec="x", mem="2GB", retry={"max": 1, "grow": {"mem": "4GB"}}),
            'jobs[0].retry.grow.mem: must be a number or an array, not a string, such as ["4GB","8GB"]',
        ),
        (
            standard(resources={"numCores": "2"}),
            "jobs[0].resources.numCores: must be a whole number or an object, not a string",
        ),
        (standard(resources={"numCores": 0}), "jobs[0].resources.numCores: must be at least 1"),
        (standard(resources={"numNodes": {"min": -1}}), "jobs[0].resources.numNodes.min: must be at least 1"),
        (standard(resources={"numCores": 2**40}), "jobs[0].resources.numCores: must be at most 2147483647"),
        (
            standard(resources={"nodeCrs": {"gpu": -1}}),
            "jobs[0].resources.nodeCrs.gpu: must be more than 0 and at most 2147483647",
        ),
        (
            standard(resources={"wt": []}),
            'jobs[0].resources.wt: must be a string or a number, not an array, such as "1h30m"',
        ),
        ({"name": "a"}, 'jobs[0]: there is nothing to start; give "exec" or "script"'),
        ({"name": "a", "iteration": 2}, 'jobs[0]: there is nothing to start; give "exec" or "script"'),
        ({"name": "a", "resources": {"numCores": 2}}, f"jobs[0]: {NO_EXECUTION}"),
        ({"name": "a", "attributes": {}}, f"jobs[0]: {NO_EXECUTION}"),
        ({"execution": {"exec": "x"}}, 'jobs[0]: the key "name" is missing'),
        ({"exec": "x"}, 'jobs[0]: the key "name" is missing'),
        ({"name": "a", "execution": None}, "jobs[0].execution: must be an object, not null"),
        ({"name": None, "exec": "x"}, "jobs[0].name: must be a string, not null"),
        ([], "jobs[0]: must be an object, not an array"),
        ("x", "jobs[0]: must be an object, not a string"),
        (None, "jobs[0]: must be an object, not null"),
        (b"{", "jobs[0]: the job is not valid JSON: Input data was truncated"),
        (b'{"name": "\xff"}', "jobs[0]: the job is not valid UTF-8 text"),
        (b"[" * 100_000, "jobs[0]: the job nests too many levels deep"),
        (
            {"name": object()},
            "jobs[0]: the job holds something that JSON cannot: Encoding objects of type object is unsupported",
        ),
        ({"name": "\ud800", "exec": "x"}, "jobs[0]: the job is not valid UTF-8 text"),
    ],
)
def test_a_syntax_problem_is_reported_with_its_path(job: Any, problem: str) -> None:
    assert problems_of(job) == [problem]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (standard(wd="x"), 'jobs[0].execution: there is nothing to start; give "exec" or "script"'),
        (standard(exec="x", script="y"), 'jobs[0].execution: "exec" and "script" exclude each other; give one of them'),
        (simple(exec="x", script="y"), 'jobs[0]: "exec" and "script" exclude each other; give one of them'),
        (standard(script="y", args=["z"]), 'jobs[0].execution.args: a "script" takes no arguments; write them into it'),
        (standard(exec=""), "jobs[0].execution.exec: is empty"),
        (standard(script=" \n"), "jobs[0].execution.script: is empty"),
        (
            standard(exec="x", model="mpi"),
            'jobs[0].execution.model: unknown model "mpi"; known here: default, threads, openmpi, intelmpi, srunmpi',
        ),
        (
            standard(exec="x", model="openmp"),
            'jobs[0].execution.model: unknown model "openmp"; did you mean "openmpi"?',
        ),
        (
            standard(exec="x", env={"A=B": "c"}),
            'jobs[0].execution.env: the name of a variable must not be empty and must not hold "="',
        ),
        (
            standard(exec="x", env={"": "c"}),
            'jobs[0].execution.env: the name of a variable must not be empty and must not hold "="',
        ),
        (standard(exec="x", args=["a", "b\0"]), "jobs[0].execution.args[1]: holds a NUL character"),
        (standard(exec="x", env={"a\0": "b"}), "jobs[0].execution.env: holds a NUL character"),
        (
            {**standard(), "attributes": {"a": [2**64]}},
            "jobs[0].attributes.a[0]: the number has more than 64 bits; write it as a string",
        ),
    ],
)
def test_an_invalid_execution_is_rejected(job: Any, problem: str) -> None:
    assert problems_of(job) == [problem]


@pytest.mark.parametrize(
    ("amount", "problem"),
    [
        ({}, 'numCores: is empty; give "exact", "min", "max" or "scheduler"'),
        ({"exact": 2, "min": 1}, 'numCores: "exact" excludes "min" and "max"'),
        ({"exact": 2, "max": 3}, 'numCores: "exact" excludes "min" and "max"'),
        ({"min": 3, "max": 2}, 'numCores: "min" is 3, more than "max", which is 2'),
        (
            {"exact": 2, "split-into": 3},
            'numCores: a scheduler determines the number itself and excludes "exact"; give "min"',
        ),
        (
            {"max": 2, "split-into": 3},
            'numCores: a scheduler determines the number itself and excludes "max"; give "min"',
        ),
        (
            {"max": 2, "scheduler": "split-into"},
            'numCores: a scheduler determines the number itself and excludes "max"; give "min"',
        ),
        (
            {"split-into": 2, "scheduler": "split-into"},
            'numCores: "split-into" and "scheduler" exclude each other; give one of them',
        ),
        (
            {"scheduler": "maximum-iter"},
            'numCores.scheduler: unknown scheduler "maximum-iter"; did you mean "maximum-iters"?',
        ),
        (
            {"scheduler": {"name": "maximum-iters", "params": {"parts": 2}}},
            "numCores.scheduler: maximum-iters takes no parts; split-into does",
        ),
    ],
)
def test_an_invalid_number_of_cores_is_rejected(amount: Any, problem: str) -> None:
    job = {**standard(resources={"numCores": amount}), "iteration": 2}
    assert problems_of(job) == ["jobs[0].resources." + problem]


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (
            {"numCores": {"scheduler": "maximum-iters"}},
            ".numCores.scheduler: maximum-iters is for jobs with iterations",
        ),
        (
            {"numCores": {"scheduler": "split-into"}},
            ".numCores.scheduler: split-into needs params.parts in a job without iterations",
        ),
        (
            {"numCores": {"split-into": 2}, "numNodes": {"split-into": 2}},
            ": only one of numCores and numNodes can be left to a scheduler",
        ),
        ({"nodeCrs": {"gpu": 1, "GPU": 2}}, '.nodeCrs.GPU: "gpu" is given twice'),
        ({"wt": "0s"}, '.wt: the wall time "0s" must be longer than zero'),
    ],
)
def test_invalid_resources_are_rejected(resources: Any, problem: str) -> None:
    assert problems_of(standard(resources=resources)) == ["jobs[0].resources" + problem]


@pytest.mark.parametrize("nodes", [2, {"split-into": 2}])
def test_the_threads_model_rejects_several_nodes(nodes: Any) -> None:
    job = standard(resources={"numNodes": nodes}, exec="x", model="threads")
    assert problems_of(job) == ["jobs[0].resources.numNodes: the threads model runs on one node"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "the name is empty"),
        ("a:1", "a colon"),
        ("a b", "white space"),
        ("a\tb", "white space"),
        ("a\u00a0b", "white space"),
        ("a\x01", "a control character"),
        ("a'b", "a quote"),
        ('a"b', "a quote"),
        ("a(b", "a bracket"),
        ("a]", "a bracket"),
        ("a{", "a bracket"),
        ("a$b", "a dollar sign"),
        ("a_${foo}", "the unknown variable ${foo}"),
        ("a_${jname}", "the unknown variable ${jname}"),
        ("a_$${rcnt}", "a dollar sign"),
        ("a_${ncores}", "${ncores}, which is known only when the job starts"),
        ("a_${it}", "${it}, which needs iterations"),
    ],
)
def test_an_invalid_name_is_rejected(name: str, sentence: str) -> None:
    (problem,) = problems_of(standard(name))
    assert problem.startswith("jobs[0].name: the name ")
    assert sentence in problem


@pytest.mark.parametrize(
    "name", ["a", "a-b.c_d/1", "ü", "名前", "x" * 200, "a+b=c,d;e", "${rcnt}", "${ sname }_${date}"]
)
def test_any_other_name_is_accepted(name: str) -> None:
    assert parse_one(standard(name)).name


@pytest.mark.parametrize(
    ("after", "iterated", "meant"),
    [
        ("b", False, ("b",)),
        (["b", "c"], False, ("b", "c")),
        (("b", "c", "b"), False, ("b", "c")),
        (["b:3", "b:-1", "b:007"], False, ("b:3", "b:-1", "b:7")),
        (["b:${it}", "b:${ it }", "c"], True, ("b:${it}", "c")),
        (["b_${rcnt}:${it}"], True, ("b_7:${it}",)),
        ([], False, ()),
    ],
)
def test_prerequisites_are_stored_in_one_notation(after: Any, iterated: bool, meant: tuple[str, ...]) -> None:
    iteration = {"iteration": 2} if iterated else {}
    assert parse_one({**standard(), "dependencies": {"after": after}, **iteration}).after == meant
    assert parse_one(simple(after=after, **iteration)).after == meant


@pytest.mark.parametrize(
    ("entry", "iterated", "sentence"),
    [
        ("", False, "is empty"),
        ("b:", False, '"b:" names no iteration; write its index after the colon'),
        ("b:x", False, '"b:x" names no iteration'),
        ("b:1:2", False, '"b:1:2" names no iteration'),
        ("b:1.5", False, '"b:1.5" names no iteration'),
        ("b:٣", False, "names no iteration"),
        ("b:" + "9" * 5000, False, "names no iteration"),
        ("b:${itval}", True, "names no iteration"),
        ("b:$$$${it}", True, "names no iteration"),
        (":1", False, "the name is empty"),
        ("b c", False, "white space"),
        ("b:${it}", False, '"b:${it}" means the same index, but this job has no iterations'),
        ("b_${it}", True, "elsewhere only if the job's own name holds it"),
        ("b_${foo}", False, "the unknown variable ${foo}"),
    ],
)
def test_an_invalid_prerequisite_is_rejected(entry: str, iterated: bool, sentence: str) -> None:
    iteration = {"iteration": 2} if iterated else {}
    (problem,) = problems_of({**standard(), "dependencies": {"after": ["ok", entry]}, **iteration})
    assert problem.startswith("jobs[0].dependencies.after[1]: ")
    assert sentence in problem
    (problem,) = problems_of(simple(after=entry, **iteration))
    assert problem.startswith("jobs[0].after: ")


def test_duplicate_names_are_rejected_with_both_paths() -> None:
    assert problems_of(standard("x"), standard("y"), simple(name="x"), standard("x")) == [
        'jobs[2].name: "x" is already used by jobs[0]',
        'jobs[3].name: "x" is already used by jobs[0]',
    ]


def test_all_problems_of_all_jobs_are_reported_in_order() -> None:
    assert problems_of(
        {"name": 1, "execution": {"exce": "x", "args": 5}, "resources": {"wt": {}}},
        standard("ok"),
        simple(name="a b", exec="x", wt="soon", iteration=0, after=["", "c:x"], numCores={"exact": 1, "min": 1}),
        [],
    ) == [
        "jobs[0].name: must be a string, not a number",
        'jobs[0].execution.exce: unknown key; did you mean "exec"?',
        "jobs[0].execution.args: must be an array, not a number",
        'jobs[0].resources.wt: must be a string or a number, not an object, such as "1h30m"',
        "jobs[2].iteration: there is no iteration from 0 up to 0 in steps of 1",
        'jobs[2].numCores: "exact" excludes "min" and "max"',
        'jobs[2].wt: "soon" is not a wall time; write it as 1h30m, 90s, 2d, 01:30:00, 1-12:00:00, PT1H30M, '
        "or a number of seconds",
        'jobs[2].name: the name "a b" holds white space or a control character',
        "jobs[2].after[0]: is empty",
        'jobs[2].after[1]: "c:x" names no iteration; write its index after the colon, as in job:3',
        "jobs[3]: must be an object, not an array",
    ]


def test_a_message_shows_fifty_problems_and_counts_the_rest() -> None:
    error = DescriptionError([Problem(f"jobs[{number}]", "is wrong") for number in range(53)])
    lines = str(error).splitlines()
    assert lines[0] == "jobs[0]: is wrong"
    assert lines[-1] == "and 3 more"
    assert len(lines) == 51


def test_parsing_stops_after_too_many_problems() -> None:
    wrong = msgspec.json.encode(standard(exec="x", arg=[]))
    with pytest.raises(DescriptionError) as error:
        parse(*[wrong] * 20_000)
    assert len(error.value.problems) == 10_001
    assert error.value.problems[-1] == Problem("jobs[9999]", "too many problems; the rest was not checked")


def test_attributes_nested_too_deep_are_rejected() -> None:
    for levels in (101, 300, 900, 5000):
        text = b'{"name":"a","execution":{"exec":"x"},"attributes":{"a":' + b"[" * levels + b"]" * levels + b"}}"
        (problem,) = problems_of(text)
        assert re.search(r"nests (too many|more than 100) levels deep$", problem)


def test_long_and_odd_keys_stay_readable_in_a_path() -> None:
    (problem,) = problems_of({**standard(), "k\n" + "x" * 500: 1})
    assert "\n" not in problem
    assert len(problem) < 300


def test_problems_can_start_with_another_path() -> None:
    with pytest.raises(DescriptionError, match=re.escape("[2].jobs[0]: must be an object, not a number")):
        parse_jobs([b"1"], CONTEXT, "[2].jobs")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"name": "a", "exe": "ls"}, ['jobs[0].exe: unknown key; did you mean "exec"?']),
        ({"name": "a", "scirpt": "ls", "numCores": 2}, ['jobs[0].scirpt: unknown key; did you mean "script"?']),
        (
            {"name": "a", "execuiton": {"exec": "ls"}},
            ['jobs[0].execuiton: unknown key; did you mean "execution"?', f"jobs[0]: {NO_EXECUTION}"],
        ),
        (
            {"name": "a", "exec": "ls", "dependencies": {"after": ["b"]}},
            ['jobs[0].dependencies: unknown key; in the simple form it is "after"'],
        ),
    ],
)
def test_a_misspelt_key_does_not_change_the_form(job: dict[str, Any], expected: list[str]):
    with pytest.raises(DescriptionError) as caught:
        parse_jobs([job], CONTEXT)
    assert str(caught.value).splitlines() == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            {"name": "a b", "execution": {"exec": "ls", "arg": []}, "resources": {"wt": "soon", "numCores": "x"}},
            ["jobs[0].execution.arg", "jobs[0].resources.numCores", "jobs[0].name", "jobs[0].resources.wt"],
        ),
        ({"name": "a b", "exec": "ls", "argz": 1, "wt": "soon"}, ["jobs[0].argz", "jobs[0].name", "jobs[0].wt"]),
        ({"name": "a", "execution": {"exe": "ls"}}, ["jobs[0].execution.exe"]),
        ({"name": "a", "execution": {"exec": "ls", "args": "x"}}, ["jobs[0].execution.args"]),
        ({"name": 3, "execution": {}}, ["jobs[0].name"]),
    ],
)
def test_an_unknown_key_does_not_hide_other_problems(job: dict[str, Any], expected: list[str]):
    with pytest.raises(DescriptionError) as caught:
        parse_jobs([job], CONTEXT)
    assert sorted(problem.path for problem in caught.value.problems) == sorted(expected)
