"""Warnings about valid but probably unintended descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from qcg.pilotjob.description.warnings import nearest_variable, warnings_for
from tests.description.helpers import parse, simple


def warnings_of(**job: Any) -> list[str]:
    return [doubt for description in parse(simple(**job)) for doubt in warnings_for(description)]


@pytest.mark.parametrize(
    "job",
    [
        {"stdout": "out", "stderr": "err"},
        {"iteration": 1, "stdout": "out"},
        {"iteration": 5},
        {"iteration": 5, "stdout": "out.${it}"},
        {"iteration": 5, "stdout": "out.${ itval }", "stderr": "${uniq}.err"},
        {"iteration": 5, "wd": "run-${it}", "stdout": "out"},
        {"iteration": 5, "stdout": "/dev/null"},
        {"iteration": 5, "args": ["${it}"]},
        {"name": "n_${it}", "iterate": [0, 3], "stdout": "out.${it}", "args": ["${it}", "${its}"]},
        {"iteration": 5, "stdout": "out.$${it}"},
        {"args": ["$$$${it}", "$it", "${ncores}", "${item} of a list"]},
        {"args": ["-c", "for it in a b; do echo ${it}; done"]},
        {"args": ["-c", "it=7; echo ${it}"]},
        {"args": ["-c", "${item}"]},
        {"exec": "/usr/bin/ssh", "args": ["host", "${HOME}/run"]},
        {"exec": None, "script": "cd ${HOME}", "env": {"A": "${HOME}"}},
        {"exec": None, "iteration": 5, "script": "for it in 1 2; do echo $it; done"},
        {"exec": None, "iteration": 5, "script": "echo \\$it $$it $items $itvalue ${it}"},
        {"args": ["-c", "echo ${it}"], "env": {"it": "7"}},
    ],
)
def test_plausible_descriptions_cause_no_warning(job: dict[str, Any]):
    assert warnings_of(**job) == []


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"stdout": "out"}, 'their stdout to the same file, "out"'),
        ({"stderr": "logs/err.${jname}"}, 'their stderr to the same file, "logs/err.j"'),
        ({"stdout": "both", "stderr": "both"}, 'their stdout and stderr to the same file, "both"'),
        ({"stdout": "out.$$$${it}"}, 'their stdout to the same file, "out.$$$${it}"'),
        ({"stdout": "out.${its}"}, 'their stdout to the same file, "out.${its}"'),
        ({"wd": "run-${it}", "stdout": "/shared/out"}, 'their stdout to the same file, "/shared/out"'),
        ({"wd": "run", "stdout": "out", "stderr": "err.${it}"}, 'their stdout to the same file, "out"'),
    ],
)
def test_iterations_that_overwrite_a_file_cause_a_warning(job: dict[str, Any], expected: str):
    assert warnings_of(name="j", iteration=5, **job) == [
        f"all 5 iterations write {expected}; put ${{it}} into its name"
    ]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("itt", "it"),
        ("iit", "it"),
        ("ist", "its"),
        ("itvall", "itval"),
        ("it_val", "itval"),
        ("itval_", "itval"),
        ("it_strat", "it_start"),
        ("itstop", "it_stop"),
        ("ncore", "ncores"),
        ("cores", "ncores"),
        ("n_cores", "ncores"),
        ("nodes", "nnodes"),
        ("n_list", "nlist"),
        ("jobname", None),
        ("jnam", "jname"),
        ("uniqe", "uniq"),
        ("rootwd", "root_wd"),
        ("datetime", "dateTime"),
        ("Ncores", "ncores"),
        ("dtae", "date"),
        *[(name, None) for name in ("i", "x", "id", "ti", "item", "bit", "fit", "int", "iter", "data", "rate", "gate")],
        *[(name, None) for name in ("file", "line", "name", "list", "user", "path", "host", "node", "dates", "times")],
        *[(name, None) for name in ("HOME", "USER", "PATH", "NCORES", "IT", "DATE", "TIME", "SLURM_JOB_ID", "TMPDIR")],
        ("a_name_that_is_very_long_and_near_to_nothing", None),
    ],
)
def test_nearest_variable_finds_misspellings_and_no_ordinary_names(name: str, near: str | None):
    assert nearest_variable(name) == near


@pytest.mark.parametrize("keys", [{"iteration": 3}, {}])
@pytest.mark.parametrize(
    "place",
    [
        {"args": ["x", "${itt}"]},
        {"wd": "run_${itt}"},
        {"stdin": "${ itt }.in"},
        {"env": {"A": "${itt}"}},
        {"script": "cd run_${itt}; ./prog"},
    ],
)
def test_a_misspelt_variable_causes_a_warning(place: dict[str, Any], keys: dict[str, Any]):
    expected = "${itt} is no variable and stays as it is; did you mean ${it}?"
    assert warnings_of(**place, **keys) == [expected]


@pytest.mark.parametrize(
    "job",
    [
        {"args": ["${mem}"]},
        {"args": ["x", "--mem=${mem}"], "env": {"mem": "3"}},
        {"wd": "/scratch/${mem}"},
        {"iteration": 2, "stdout": "${mem}.${it}"},
    ],
)
def test_an_unknown_variable_where_no_shell_replaces_it_causes_a_warning(job: dict[str, Any]):
    reason = "no shell reads args and paths; put the command into script if one should"
    assert warnings_of(**job) == [f"${{mem}} is no variable and stays as it is: {reason}"]
    several = warnings_of(args=["${HOME}/${T}"])
    assert several == [f"${{HOME}}, ${{T}} are no variables and stay as they are: {reason}"]


def test_a_variable_without_braces_in_a_script_causes_a_warning():
    script = 'echo $it "$itval" $it'
    assert warnings_of(exec=None, script=script, iteration=3) == [
        "$it is a variable of the shell without a value; write ${it}",
        "$itval is a variable of the shell without a value; write ${itval}",
    ]
    assert warnings_of(exec=None, script=script) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${y}", ["${y} is no variable and stays as it is; did you mean ${itval.y}?"]),
        ("${itval.x}", ['${itval.x} stays as it is: no value has "x"; known here: y']),
        ("${itval.y}", []),
        ("${itvl.x}", ["${itvl.x} is no variable and stays as it is; ${itval} is known as a whole only"]),
        (
            "${ncores.x} ${ncores.x}",
            ["${ncores.x} is no variable and stays as it is; ${ncores} is known as a whole only"],
        ),
        ("${foo.bar} ${x:-1} ${itval:-1} ${#itt} ${itt%.x} ${!itt}", []),
    ],
)
def test_a_part_of_a_variable_causes_a_warning(text: str, expected: list[str]):
    assert warnings_of(iteration=[{"y": 1}], args=[text]) == expected


@pytest.mark.parametrize(
    "script",
    [
        "itt=1; echo ${itt}",
        "for itt in 1 2; do echo ${itt}; done",
        "while read -r a itt; do echo ${itt}; done < list",
        "local itt; echo ${itt}",
        "printf -v itt %s 3; echo ${itt}",
        "mapfile -t itt < list; echo ${itt}",
        "getopts ab itt; echo ${itt}",
        "source settings.sh; echo ${itt}",
        ". ./settings.sh\necho ${itt}",
        "eval $(settings); echo ${itt}",
        "echo ${HOME} ${x:-1} ${PATH} ${1} ${@} ${#} $itt",
        "echo $${itt} $$$${itt}",
    ],
)
def test_variables_of_a_script_cause_no_warning(script: str):
    assert warnings_of(script=script) == []


def test_variables_of_the_job_environment_cause_no_warning():
    assert warnings_of(script="echo ${itt}", env={"itt": "1"}) == []


def test_a_warning_stays_short():
    assert warnings_of(iteration=2, args=["${itval." + "x" * 10_000 + "}"]) == []


def test_each_mistake_is_reported_once():
    assert len(warnings_of(args=["${itt}", "${itt}", "${ itt }"], stdout="${itt}")) == 1


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"args": ["${it}"]}, "${it} has"),
        ({"stdout": "out.${ itval }"}, "${itval} has"),
        ({"exec": None, "script": "echo ${it} of ${its} ${it}"}, "${it}, ${its} have"),
        ({"env": {"NUMBER": "${it_start}"}}, "${it_start} has"),
    ],
)
def test_iteration_variables_without_iterations_cause_a_warning(job: dict[str, Any], expected: str):
    assert warnings_of(**job) == [f'{expected} no value in a job without iterations; give the job an "iteration"']
