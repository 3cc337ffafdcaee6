from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.description.model import Execution, JobDescription, ModelOptions
from qcg.pilotjob.description.parse import parse_jobs
from qcg.pilotjob.description.variables import (
    AT_LAUNCH,
    AT_SUBMISSION,
    DOUBLED,
    OF_ITERATION,
    iteration_variable,
    launch_variables,
    resolve_execution,
    substitute,
    substitute_early,
)
from tests.description.helpers import CONTEXT, parse, parse_one, simple, standard

LAUNCH = launch_variables("/home/me", 4, ["n1", "n2"])


def iteration_variables(description: JobDescription, index: int) -> dict[str, str]:
    names = (*OF_ITERATION, *AT_LAUNCH, *AT_SUBMISSION)
    return {name: value for name in names if (value := iteration_variable(name, description, index)) is not None}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${it}", "3"),
        ("${ it }", "3"),
        ("${\tit }", "3"),
        ("a${it}b${it}", "a3b3"),
        ("$it", "$it"),
        ("${unknown}", "${unknown}"),
        ("${it:-1}", "${it:-1}"),
        ("${}", "${}"),
        ("${it", "${it"),
        ("$$ ${it}", "$$ 3"),
        ('"\\${it}"', '"\\3"'),
    ],
)
def test_the_last_step_replaces_known_variables_and_leaves_the_rest(text: str, result: str) -> None:
    assert substitute(text, {"it": "3"}) == result


VALUES = {name: f"<{name}>" for name in (*AT_SUBMISSION, *OF_ITERATION, *AT_LAUNCH)}


def test_these_variables_accept_two_dollars() -> None:
    launch = {"it", "itval", "its", "it_start", "it_stop", "root_wd", "ncores", "nnodes", "nlist", "jname", "attempt"}
    assert launch == DOUBLED


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ("${NAME}", "VALUE"),
        ("$${NAME}", "VALUE"),
        ("$${ NAME }", "VALUE"),
        ("a$${NAME}b$${NAME}", "aVALUEbVALUE"),
        ("$$${NAME}", "$VALUE"),
        ("$$$${NAME}", "${NAME}"),
        ("$$$${ NAME }", "${ NAME }"),
        ("$$$$${NAME}", "$${NAME}"),
        ("$${NAME:-1}", "$${NAME:-1}"),
        ("$$NAME", "$$NAME"),
    ],
)
@pytest.mark.parametrize("name", sorted(DOUBLED))
def test_two_dollars_before_a_variable_of_iterations_or_launch(name: str, written: str, result: str) -> None:
    text, expected = written.replace("NAME", name), result.replace("NAME", name).replace("VALUE", VALUES[name])
    assert substitute(text, VALUES) == expected
    assert substitute(substitute_early(text, VALUES), VALUES) == expected, "known at submission"
    assert substitute(substitute_early(text, {}), VALUES) == expected, "known at launch"


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("$$$${NAME}", "${NAME}"),
        ("$$$$${NAME}", "$${NAME}"),
    ],
)
@pytest.mark.parametrize("name", [*sorted(set(VALUES) - DOUBLED), "HOME", "unknown"])
def test_two_dollars_before_any_other_name(name: str, written: str, result: str) -> None:
    text, expected = written.replace("NAME", name), result.replace("NAME", name)
    assert substitute(text, VALUES) == expected
    assert substitute(substitute_early(text, VALUES), VALUES) == expected


def test_a_variable_without_a_value_loses_its_second_dollar_as_any_other_name_does() -> None:
    assert substitute("${it} $${it} $$$${it}", {}) == "${it} ${it} ${it}"


def test_an_earlier_step_keeps_escaped_text() -> None:
    assert substitute_early("${it} $$$${it} ${ncores}", {"it": "3"}) == "3 $$$${it} ${ncores}"


@given(st.text("${}its x", max_size=12))
def test_a_value_inserted_early_is_unchanged_after_the_last_step(value: str) -> None:
    early = substitute_early("<${sname}>", {"sname": value})
    assert substitute(early, {"it": "3", "its": "4", "t": "5"}) == f"<{value}>"


@given(st.text("${}its x", max_size=12), st.sampled_from(["", "$", "x$"]))
def test_a_value_inserted_early_after_a_dollar_is_unchanged(value: str, before: str) -> None:
    early = substitute_early(f"{before}$${{itval}}>", {"itval": value})
    assert substitute(early, {"it": "3", "its": "4", "t": "5"}) == f"{before}{value}>"


@given(st.text("${}its x", max_size=12))
def test_variables_inside_values_are_not_substituted(value: str) -> None:
    assert substitute("<${itval}>", {"itval": value, "it": "3", "its": "4"}) == f"<{value}>"


@pytest.mark.parametrize("written", [r"${jname}.out", r"\u0024{jname}.out", r"$\u007bjname}.out"])
def test_a_variable_is_found_however_json_writes_its_characters(written: str) -> None:
    (job,) = parse_jobs([f'{{"name": "a", "exec": "x", "stdout": "{written}"}}'.encode()], CONTEXT)
    assert job.execution.stdout == "a.out"


def test_prerequisites_may_contain_the_job_name() -> None:
    before, after = parse(simple(name="a-before"), simple(name="a", after="${jname}-before"))
    assert after.after == (before.name,)


def test_every_string_of_a_description_is_substituted_at_submission() -> None:
    job = {
        "name": "j_${rcnt}",
        "execution": {
            "exec": "${sname}/x",
            "args": ["${date}", "${time}", "${dateTime}", "${uniq}", "${jname}"],
            "env": {"K${rcnt}": "${jname}"},
            "wd": "${jname}/w",
            "stdin": "${jname}.in",
            "stdout": "${jname}.out",
            "stderr": "${jname}.err",
            "modules": ["m/${rcnt}"],
            "venv": "v${rcnt}",
            "model_opts": {"mpirun": "${sname}/mpirun", "mpirun_args": ["${rcnt}"], "srun_args": ["${jname}"]},
        },
        "dependencies": {"after": ["other_${rcnt}"]},
        "attributes": {"k${rcnt}": [{"deep": "${jname} $${rcnt} $${jname}"}, 1]},
    }
    description = parse_one(job)
    assert description.name == "j_7"
    assert description.after == ("other_7",)
    assert description.attributes == {"k7": [{"deep": "j_7 ${rcnt} j_7"}, 1]}
    assert description.execution == Execution(
        exec="eagle/x",
        args=("2026-11-15", "18:20:10", "2026-11-15 18:20:10", "u1-0", "j_7"),
        env={"K7": "j_7"},
        wd="j_7/w",
        stdin="j_7.in",
        stdout="j_7.out",
        stderr="j_7.err",
        modules=("m/7",),
        venv="v7",
        model_opts=ModelOptions("eagle/mpirun", ("7",), ("j_7",)),
    )
    assert parse_one(simple(script="echo ${jname} ${x}")).execution.script == "echo a ${x}"


def test_launch_variables_are_substituted_at_launch() -> None:
    args = ["${root_wd}/${ncores}.${nnodes}.${nlist}", "$${ncores}", "$$$${ncores}"]
    execution = parse_one(standard(exec="x", args=args)).execution
    assert execution.args == tuple(args)
    assert resolve_execution(execution, LAUNCH).args == ("/home/me/4.2.n1,n2", "4", "${ncores}")


def test_every_string_of_an_execution_is_resolved_at_launch() -> None:
    def with_text(text: str) -> Execution:
        return Execution(
            exec=text,
            args=("-", text),
            script=text,
            env={text: text},
            wd=text,
            stdin=text,
            stdout=text,
            stderr=text,
            modules=(text,),
            venv=text,
            model_opts=ModelOptions(text, (text,), ("-", text)),
        )

    assert resolve_execution(with_text("${ncores}"), LAUNCH) == with_text("4")


def test_an_execution_without_variables_is_left_as_it_is() -> None:
    execution = parse_one(standard(exec="x", args=["$HOME"], env={"A": "$B"})).execution
    assert resolve_execution(execution, LAUNCH) is execution


def test_quotes_and_backslashes_in_values_are_safe() -> None:
    nasty = ['"', "'", "\\", '\\"', "a\nb", "\u2028", '${jname}"\\', "\x7f"]
    description = parse_one({**standard(exec="x", args=nasty), "iteration": {"values": nasty}})
    assert description.execution.args == (*nasty[:6], 'a"\\', "\x7f")
    values = [iteration_variables(description, index)["itval"] for index in range(len(nasty))]
    assert values == nasty


def test_iteration_variables_give_index_value_and_bounds() -> None:
    (description,) = parse({**standard(exec="x"), "iteration": {"start": 2, "stop": 9, "step": 3}})
    assert iteration_variables(description, 5) == {
        "it": "5",
        "itval": "5",
        "its": "3",
        "it_start": "2",
        "it_stop": "9",
        "uniq": "u1-0-5",
    }


def test_a_job_without_iterations_has_no_iteration_variables() -> None:
    description = parse_one(standard(exec="x", args=["${it} ${itval} ${its}"]))
    assert iteration_variables(description, 0) == {}
    assert description.execution.args == ("${it} ${itval} ${its}",)


def test_uniq_differs_between_jobs_and_between_iterations() -> None:
    one = standard("one", exec="x", args=["${uniq}"])
    many = {**standard("many", exec="x", args=["${uniq}"]), "iteration": 2}
    first, second = parse(one, many)
    args = [first.execution.args[0]]
    args += [resolve_execution(second.execution, iteration_variables(second, index)).args[0] for index in (0, 1)]
    assert args == ["u1-0", "u1-1-0", "u1-1-1"]


def test_an_iteration_value_is_never_taken_for_a_variable() -> None:
    job = {**standard("e_${it}", exec="x", args=["${itval}"]), "iteration": {"values": ["${ncores}", "$${it}"]}}
    args = [resolve_execution(description.execution, LAUNCH).args[0] for description in parse(job)]
    assert args == ["${ncores}", "$${it}"]


def test_submission_variables_have_the_documented_formats() -> None:
    assert CONTEXT.variables() == {
        "rcnt": "7",
        "sname": "eagle",
        "date": "2026-11-15",
        "time": "18:20:10",
        "dateTime": "2026-11-15 18:20:10",
    }
