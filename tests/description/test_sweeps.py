"""Iterations over indices, named values and rows of files, as far as no file is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.iteration import IndexList, Iteration, RowError, RowFile
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import check_single_job, parse_jobs, simple_to_standard
from qcg.pilotjob.description.variables import iteration_variable, substitute
from qcg.pilotjob.description.warnings import warnings_for
from tests.description.helpers import CONTEXT, parse_one, problems_of, simple, standard

PARAMS = RowFile("/data/params.csv", 3, ("T", "p", ""), "d", 10, 20)


def iteration_of(written: Any) -> Iteration:
    iteration = parse_one(simple(iteration=written)).iteration
    assert iteration is not None
    return iteration


def with_file(read: RowFile | list[str] = PARAMS, **keys: Any) -> JobDescription:
    (description,) = parse_jobs(
        [simple(**{"iteration": {"file": "params.csv"}, **keys})], CONTEXT, read_rows=lambda path: read
    )
    return description


def warnings_about_file(**keys: Any) -> list[str]:
    return warnings_for(with_file(**keys))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([31, 133], Iteration(31, 134, 102)),
        ([4], Iteration(4, 5)),
        ([3, 2, 1], Iteration(3, 0, -1)),
        ([31, 7, 133], Iteration(7, 134, listed=(31, 7, 133))),
        ([-1, 5, 6], Iteration(-1, 7, listed=(-1, 5, 6))),
    ],
)
def test_written_indices_are_kept_in_their_order(written: list[int], kept: Iteration) -> None:
    iteration = iteration_of({"indices": written})
    assert iteration == kept
    assert list(iteration.indices()) == written
    assert [iteration.index(position) for position in range(len(iteration))] == written


def test_a_list_of_indices_behaves_like_a_range() -> None:
    indices = IndexList((31, 7, 133))
    assert (len(indices), indices[0], indices[-1], indices.index(7)) == (3, 31, 133, 1)
    assert 133 in indices
    assert 32 not in indices
    assert (indices.start, indices.stop, indices.step) == (7, 134, 1)


def test_a_product_has_every_combination_and_the_last_name_changes_first() -> None:
    iteration = iteration_of({"product": {"T": [250, 300], "p": [1, "x", None]}})
    assert [iteration.value(index) for index in iteration.indices()] == [
        {"T": T, "p": p} for T in (250, 300) for p in (1, "x", None)
    ]
    assert iteration.variable("p", 5) == "null"
    assert iteration.variable("itval.T", 5) == "300"
    assert iteration.variable("row.T", 5) is None


def test_a_zip_takes_the_values_of_all_names_together() -> None:
    iteration = iteration_of({"zip": {"T": [250, 300], "where": [{"x": 1}, {"x": [2]}]}})
    assert [iteration.value(index) for index in iteration.indices()] == [
        {"T": 250, "where": {"x": 1}},
        {"T": 300, "where": {"x": [2]}},
    ]
    assert iteration.variable("itval.where.x", 1) == "[2]"


def test_a_large_product_is_stored_as_its_lists() -> None:
    iteration = iteration_of({"product": {"a": list(range(1000)), "b": list(range(1000)), "c": list(range(100))}})
    assert len(iteration) == 100_000_000
    assert iteration.value(99_999_999) == {"a": 999, "b": 999, "c": 99}
    assert len(msgspec.msgpack.encode(iteration)) < 10_000


def test_a_stored_iteration_is_read_again() -> None:
    for written in ({"indices": [1, 5, 2]}, {"product": {"T": [1.5, None]}}, {"zip": {"a": ["x"]}}, [{"k": [1]}]):
        iteration = iteration_of(written)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(iteration), type=Iteration) == iteration


def test_values_of_earlier_versions_are_read_as_text() -> None:
    stored = msgspec.msgpack.encode({"start": 0, "stop": 2, "values": ["1", "x"]})
    assert msgspec.msgpack.decode(stored, type=Iteration).variable("itval", 0) == "1"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"indices": []}, ".indices: there is no iteration in an empty list"),
        ({"indices": [1, 5, 1]}, ".indices[2]: the index 1 is given twice"),
        ({"indices": ["1"]}, ".indices[0]: must be a whole number, not a string"),
        ({"product": {}}, '.product: names no values; write {"NAME": [VALUE, VALUE]}'),
        ({"product": {"T": []}}, ".product.T: there is no iteration in an empty list"),
        ({"product": {"T": 5}}, ".product.T: must be an array, not a number"),
        (
            {"zip": {"T": [1, 2], "p": [1]}},
            '.zip: the names must have equally many values ("T" 2, "p" 1); product combines them all',
        ),
        ({"zip": {"it": [1]}}, ".zip.it: ${it} is a variable of every job; choose another name"),
        ({"zip": {"row": [1]}}, ".zip.row: ${row} is a variable of every job; choose another name"),
        (
            {"zip": {"a b": [1]}},
            ".zip.a b: a name has letters, digits and _, and does not begin with a digit",
        ),
        (
            {"product": {"a": list(range(10_001)), "b": list(range(10_000))}},
            ".product: 100010000 iterations are too many for one job; at most 100000000 are allowed",
        ),
        ({"file": "a.csv", "zip": {"T": [1]}}, ': "file" and "zip" exclude each other; give one of them'),
        (
            {"product": {"T": [1]}, "stop": 3},
            ': "product" excludes "start", "stop" and "step"; give one or the other',
        ),
        ({"file": ""}, ".file: is empty"),
        ({"csv": "a.csv"}, '.csv: unknown key; did you mean "file"?'),
    ],
)
def test_a_contradictory_sweep_is_rejected_with_a_message(written: Any, problem: str) -> None:
    assert problems_of({**standard(), "iteration": written}) == [f"jobs[0].iteration{problem}"]


def test_a_file_gives_one_iteration_for_each_row() -> None:
    description = with_file()
    assert description.iteration == Iteration(0, 3, rows=PARAMS)
    assert len(description.iteration) == 3


def test_a_file_is_requested_once_in_a_submission_with_the_variables_of_its_path() -> None:
    asked: list[str] = []

    def read(path: str) -> RowFile:
        asked.append(path)
        return PARAMS

    jobs = [simple(name=name, iteration={"file": "${sname}.csv"}) for name in ("a", "b")]
    parse_jobs(jobs, CONTEXT, read_rows=read)
    assert asked == ["eagle.csv"]


def test_errors_in_a_file_are_problems_of_the_job() -> None:
    with pytest.raises(DescriptionError) as error:
        with_file(["params.csv, line 2: has 1 value", "params.csv, line 4: has 2 values"])
    assert [str(problem) for problem in error.value.problems] == [
        "jobs[0].iteration.file: params.csv, line 2: has 1 value",
        "jobs[0].iteration.file: params.csv, line 4: has 2 values",
    ]


def test_other_problems_of_a_job_with_a_file_are_reported_once() -> None:
    with pytest.raises(DescriptionError) as error:
        with_file(numCores={"exact": 1, "min": 1})
    assert [str(problem) for problem in error.value.problems] == ['jobs[0].numCores: "exact" excludes "min" and "max"']


def test_a_job_with_a_file_can_be_checked_without_the_file() -> None:
    job = simple_to_standard(simple(iteration={"file": "params.csv"}, args=["${row.T}"]))
    assert job["iteration"] == {"file": "params.csv"}
    check_single_job(job, simple=True)


@pytest.mark.parametrize(
    ("iteration", "name", "variable"),
    [
        ({"file": "params.csv"}, "run_${it}", "it"),
        ({"file": "params.csv"}, "run_${row.T}", "row.T"),
        ({"product": {"T": [1, 2]}}, "run_${T}", "T"),
        ({"values": [{"x": 1}]}, "run_${itval.x}", "itval.x"),
    ],
)
def test_a_name_with_the_value_of_an_iteration_is_rejected(iteration: Any, name: str, variable: str) -> None:
    (problem, *_) = problems_of(simple(name=name, iteration=iteration))
    assert problem == (
        f"jobs[0].name: the name holds ${{{variable}}}, but rows and named values are iterations of one job; leave it"
        " out of the name and use it in args, wd or stdout"
    )


def test_jobs_expanded_from_objects_have_their_members() -> None:
    jobs = [simple(name="a_${it}", iteration=[{"x": 1}, {"x": "b"}], args=["${itval.x}"])]
    assert [job.execution.args for job in parse_jobs(jobs, CONTEXT)] == [("1",), ("b",)]


def values_of(description: JobDescription, index: int) -> Any:
    class Values:
        def get(self, name: str, default: str) -> str:
            value = iteration_variable(name, description, index, lambda file, row: {"T": "25", "a b": "x", "n": row})
            return default if value is None else value

    return Values()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${row.T}", "25"),
        ("${ row.T }", "25"),
        ("${row.a b}", "x"),
        ("${itval.T}", "25"),
        ("${itval}", '{"T":"25","a b":"x","n":2}'),
        ("${row.tmp}", "${row.tmp}"),
        ("$${row.T}", "${row.T}"),
        ("$$$${row.T}", "${row.T}"),
        ("${row}", "${row}"),
        ("${it}-${its}", "2-3"),
        ("${row.n}", "2"),
    ],
)
def test_variables_of_a_row_are_substituted(text: str, expected: str) -> None:
    assert substitute(text, values_of(with_file(), 2)) == expected


def test_a_value_that_looks_like_a_variable_stays_text() -> None:
    (description,) = parse_jobs([simple(args=["${uniq}"])], CONTEXT)
    assert description.execution.args == ("u1-0",)
    job = parse_one(simple(iteration={"zip": {"T": ["${row.x} ${it}"]}}, args=["${T}"]))
    assert substitute("${T}", values_of(job, 0)) == "${row.x} ${it}"


def test_an_unreadable_row_raises_an_error() -> None:
    iteration = with_file().iteration
    assert iteration is not None
    with pytest.raises(RowError, match="cannot be read here"):
        iteration.value(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${row.T} ${itval.p} ${ row.p }", []),
        ("$${row.tmp} $$$${row.tmp} ${row.T.a}", []),
        ("${itval.tmp}", ['${itval.tmp} stays as it is: params.csv has no column "tmp"; known here: T, p']),
        ("${T} $${T}", ["${T} is no variable and stays as it is; did you mean ${row.T}?"]),
        ("T=1; echo ${T} ${row.p}", []),
        ("-p=${row.p -T=${row.T}", ["${row.p has no closing brace and stays as it is; did you mean ${row.p}?"]),
        ("${ row.p", ["${ row.p has no closing brace and stays as it is; did you mean ${ row.p}?"]),
        ("$${row.p $${row.p} ${row.p }", []),
    ],
)
def test_a_doubtful_reference_to_a_column_causes_a_warning(text: str, expected: list[str]) -> None:
    assert warnings_about_file(args=[text]) == expected


UNKNOWN_COLUMN = 'jobs[0]: params.csv has no column "TT" for ${row.TT}; did you mean "T"?'


@pytest.mark.parametrize(
    "keys",
    [
        {"args": ["-T", "${row.TT}"]},
        {"args": ["${ row.TT }", "${row.TT}"]},
        {"stdout": "${row.TT}.out"},
        {"wd": "w${row.TT}"},
        {"env": {"T": "${row.TT}"}},
        {"exec": None, "script": "echo ${row.TT}"},
    ],
)
def test_an_unknown_column_is_an_error_in_every_string(keys: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError) as refused:
        with_file(**keys)
    assert str(refused.value) == UNKNOWN_COLUMN


def test_an_unknown_column_without_a_similar_one_lists_the_columns() -> None:
    with pytest.raises(DescriptionError) as refused:
        with_file(args=["${row.pressure} ${row.}", "${row.T} ${row.x}"])
    assert str(refused.value).splitlines() == [
        'jobs[0]: params.csv has no column "pressure" for ${row.pressure}; known here: T, p',
        'jobs[0]: params.csv has no column "x" for ${row.x}; known here: T, p',
    ]


def test_a_row_without_a_file_causes_a_warning() -> None:
    job = parse_one(simple(args=["${row.T} ${itval.x}"], iteration=3))
    assert warnings_for(job) == [
        '${row.T} has no value and stays as it is; give the job an "iteration" with "file"',
        '${itval.x} has no value and stays as it is; give the job an "iteration" with "values" that are objects',
    ]


def test_members_that_some_values_lack_cause_a_warning() -> None:
    job = parse_one(simple(args=["${itval.x}"], iteration=[{"x": 1}, {"y": 1}, 3]))
    assert warnings_for(job) == [
        '${itval.x} stays as it is: 2 of 3 values have no "x", the first of them is value 1; known here: y'
    ]


def test_a_misspelt_name_of_a_product_causes_a_warning() -> None:
    job = parse_one(simple(args=["${temprature} ${T}"], iteration={"product": {"temperature": [1], "T": [2]}}))
    assert warnings_for(job) == ["${temprature} is no variable and stays as it is; did you mean ${temperature}?"]


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        ({"args": ["--T"]}, "T"),
        ({"args": ["p={p}"], "stdout": "out.${it}", "stderr": "${uniq}.err"}, "p"),
        ({"script": "./model $p ${ncores}"}, "p"),
        ({"args": ["$${row.p}"]}, "T"),
    ],
)
def test_a_file_of_which_no_column_is_used_causes_a_warning(keys: dict[str, Any], column: str) -> None:
    keys = keys if "script" not in keys else {**keys, "exec": None}
    assert warnings_about_file(**keys) == [
        f"no parameter of params.csv is used; write ${{row.{column}}} for the value of column {column}"
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"args": ["${row.T}"]},
        {"args": ["${itval.T}"]},
        {"args": ["--index", "${it}"]},
        {"env": {"PARAMETERS": "${itval}"}},
        {"stdin": "input.${it}"},
        {"wd": "run-${uniq}"},
        {"stdout": "${row.T}.out"},
    ],
)
def test_a_parameter_or_an_index_in_any_string_is_a_use(keys: dict[str, Any]) -> None:
    assert warnings_about_file(**keys) == []


def test_a_column_in_braces_without_a_dollar_causes_a_warning() -> None:
    assert warnings_about_file(args=["${row.p}", "T={T}", "{T}{x}"]) == [
        "{T} is no variable and stays as it is; did you mean ${row.T}?"
    ]
    assert warnings_about_file(args=["${row.p}", "-c", "T = 1; print(f'{T}')", "${ncores}{}", "$${row.p}{q}"]) == []
    job = parse_one(simple(args=["${p}", "{T}"], iteration={"zip": {"T": [1], "p": [2]}}))
    assert warnings_for(job) == ["{T} is no variable and stays as it is; did you mean ${T}?"]


def test_blanks_around_values_cause_a_warning() -> None:
    read = msgspec.structs.replace(PARAMS, padded="p")
    assert warnings_for(with_file(read, args=["${row.T}"])) == [
        "values of column p of params.csv begin or end with blanks, which are kept; remove blanks next to commas"
    ]


def test_a_column_without_row_causes_one_warning() -> None:
    assert warnings_about_file(args=["${T}"]) == ["${T} is no variable and stays as it is; did you mean ${row.T}?"]


@pytest.mark.parametrize("kind", ["product", "zip"])
def test_names_of_which_none_is_used_cause_a_warning(kind: str) -> None:
    iteration = {kind: {"T": [1, 2], "p": [3, 4]}}
    warning = f"no parameter of the {kind} is used; write ${{p}} for the value of p"
    assert warnings_for(parse_one(simple(args=["{p}"], iteration=iteration))) == [warning]
    assert warnings_for(parse_one(simple(args=["${p}"], iteration=iteration))) == []
    assert warnings_for(parse_one(simple(args=["x"], iteration={"values": [1, 2]}))) == []


@pytest.mark.parametrize("stdout", ["${T}.out", "${itval.T}.out", "${it}.out"])
def test_names_distinguish_the_output_files_of_iterations(stdout: str) -> None:
    job = parse_one(simple(iteration={"product": {"T": [1, 2]}}, args=["${T}"], stdout=stdout))
    assert warnings_for(job) == []


def test_values_that_are_too_long_are_rejected_at_submission() -> None:
    long = {"zip": {"T": ["x" * 600_000]}}
    assert problems_of(simple(iteration=long, args=["${T}${T}"])) == [
        "jobs[0]: the values of its variables have more than 1048576 characters; use fewer variables or shorter values"
    ]
