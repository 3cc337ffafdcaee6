"""Groups of job descriptions, with the current names and those of version 0.2."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from qcg.appscheduler.api import Jobs as OldJobs
from qcg.appscheduler.api.errors import InvalidJobDescription, JobNotDefined
from qcg.pilotjob.api.errors import FileError, InvalidJobDescriptionError, JobNotDefinedError
from qcg.pilotjob.api.job import JOB_TOP_ATTRS, Jobs

both = pytest.mark.parametrize("kind", [Jobs, OldJobs], ids=["today", "version 0.2"])


@both
def test_jobs_are_added_in_the_simple_form_and_stored_in_the_standard_form(kind: type[Jobs]):
    jobs = kind().add(name="a", exec="echo", args="x", numCores=2, after="b", wt="1h", stdout="out", iteration=3)
    assert jobs.jobs() == [
        {
            "name": "a",
            "iteration": {"start": 0, "stop": 3},
            "execution": {"exec": "echo", "args": ["x"], "stdout": "out"},
            "resources": {"numCores": {"exact": 2}, "wt": "1h"},
            "dependencies": {"after": ["b"]},
        }
    ]


@both
def test_named_arguments_override_the_dictionary(kind: type[Jobs]):
    assert kind().add({"name": "a", "exec": "x"}, exec="y").jobs()[0]["execution"] == {"exec": "y"}
    standard = {"name": "a", "execution": {"exec": "x"}}
    assert kind().add_std(standard, name="b").job_names() == ["b"]


def test_calls_can_be_chained_and_the_order_is_kept():
    jobs = Jobs().add(name="b", exec="true").add_std(name="a", execution={"exec": "true"}).add(name="c", script="x")
    assert jobs.job_names() == jobs.ordered_job_names() == ["b", "a", "c"]
    assert [job["name"] for job in jobs.ordered_jobs()] == ["b", "a", "c"]


def test_a_job_without_a_name_gets_one_and_a_number_is_a_name():
    names = Jobs().add(exec="true").add(exec="true").add(name=7, exec="true").job_names()
    assert len(set(names)) == 3
    assert names[2] == "7"


def test_paths_become_strings_and_numbers_of_other_libraries_become_numbers():
    args = [Path("x"), Fraction(1, 2)]
    jobs = Jobs().add(name="a", exec=Path("/bin/echo"), args=args, wd=Path("/"), stdout=Path("o"))
    execution = jobs.jobs()[0]["execution"]
    assert execution == {"exec": "/bin/echo", "args": ["x", 0.5], "wd": "/", "stdout": "o"}
    Jobs().add_std(name="a", execution={"exec": Path("true"), "env": {"HERE": Path("x")}})


def test_the_keys_of_the_simple_form_can_be_looked_up():
    assert {"name", "exec", "numCores", "after"} <= JOB_TOP_ATTRS


def test_tuples_become_lists():
    jobs = Jobs().add(name="a", exec="echo", args=("x", "y"), after=("b", "c"))
    assert jobs.jobs()[0]["execution"]["args"] == ["x", "y"]
    assert jobs.jobs()[0]["dependencies"] == {"after": ["b", "c"]}
    Jobs().add_std(name="a", execution={"exec": "echo", "args": ("x",)}, dependencies={"after": ("b",)})


class Array:
    """Has the method with which NumPy converts its arrays."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def tolist(self) -> list[Any]:
        return list(self._values)


def test_sweeps_are_added_with_the_values_of_other_libraries():
    jobs = Jobs()
    jobs.add(name="grid", exec="echo", args=["${T}"], iteration={"product": {"T": (Fraction(1, 2), 2), "p": [True]}})
    jobs.add(name="rows", exec="echo", args=["${row.T}"], iteration={"file": Path("params.csv")})
    jobs.add(name="some", exec="echo", iteration={"indices": range(31, 134, 102)})
    jobs.add(name="array", exec="echo", iteration={"zip": {"T": Array(0.5, 1.5), "p": [Array(True), "x"]}})
    assert [job["iteration"] for job in jobs.jobs()] == [
        {"product": {"T": [0.5, 2], "p": [True]}},
        {"file": "params.csv"},
        {"indices": [31, 133]},
        {"zip": {"T": [0.5, 1.5], "p": [[True], "x"]}},
    ]
    with pytest.raises(InvalidJobDescriptionError, match='"p" 1'):
        jobs.add(name="pairs", exec="echo", iteration={"zip": {"T": [1, 2], "p": [1]}})


def test_a_set_is_taken_where_the_order_has_no_meaning():
    jobs = Jobs().add(name="a", exec="true", after={"b"})
    jobs.add_std(name="c", execution={"exec": "true"}, dependencies={"after": frozenset({"b"})})
    assert [job["dependencies"] for job in jobs.jobs()] == [{"after": ["b"]}] * 2
    for attributes in ({"iteration": {"x", "y"}}, {"iteration": {"values": {1, 2}}}, {"args": {"x", "y"}}):
        with pytest.raises(InvalidJobDescriptionError, match="is a set, which has no order; give a list"):
            jobs.add(name="d", exec="true", **attributes)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"exec": "true", "numCore": 1}, 'numCore: unknown key; did you mean "numCores"'),
        ({"name": "a b", "exec": "true"}, "name"),
        ({"name": "a"}, "exec"),
        ({"exec": "true", "script": "x"}, "script"),
        ({"exec": "true", "numCores": {"exact": 1, "min": 1}}, "exact"),
        ({"exec": "true", "wt": "soon"}, "wt"),
        ({"exec": "true", "args": ["x", object()]}, r"args\[1\]: <object .* cannot be part of a description"),
        ({"exec": "true", "env": {"A": {1: b"x"}}}, r"env\.A\.1: b'x' cannot"),
        ({"exec": "true", "model": "mpi"}, "model"),
        ({"exec": "true", "numCores": 10**5000}, "holds a number with too many digits; write it as a string"),
        ({"exec": "true", "env": {"A": -(10**5000)}}, "holds a number with too many digits"),
        ({"exec": "true", "name": 10**5000}, "the name holds a number with too many digits"),
    ],
    ids=range(12),
)
def test_an_invalid_description_is_refused_when_it_is_added(attributes: dict[str, Any], reason: str):
    jobs = Jobs()
    with pytest.raises(InvalidJobDescriptionError, match=reason):
        jobs.add(attributes)
    assert jobs.job_names() == []


@pytest.mark.parametrize("given", ["date", ["date"], 7])
def test_a_job_that_is_no_dictionary_is_refused(given: Any):
    with pytest.raises(InvalidJobDescriptionError, match="a job is a dictionary, or named arguments"):
        Jobs().add(given)
    with pytest.raises(InvalidJobDescriptionError, match="a job is a dictionary, or named arguments"):
        Jobs().add_std(given)


def test_a_name_can_be_used_once():
    jobs = Jobs().add(name="a", exec="true")
    with pytest.raises(InvalidJobDescriptionError, match="'a' is already in this group"):
        jobs.add_std(name="a", execution={"exec": "true"})


def test_jobs_can_be_removed_from_a_group():
    jobs = Jobs().add(name="a", exec="true").add(name="b", exec="true").add(name="c", exec="true")
    jobs.remove("b")
    assert jobs.job_names() == ["a", "c"]
    with pytest.raises(JobNotDefinedError, match="'b'"):
        jobs.remove("b")
    assert jobs.clear() == 2
    assert jobs.job_names() == []


def test_a_group_is_saved_and_loaded(tmp_path: Path):
    jobs = Jobs().add(name="a", exec="echo", args=["ü", '"'], numCores=2).add(name="b", script="x", after="a")
    jobs.save_to_file(tmp_path / "jobs.json")
    again = Jobs()
    again.load_from_file(str(tmp_path / "jobs.json"))
    assert again.jobs() == jobs.jobs() == json.loads((tmp_path / "jobs.json").read_text())


def test_unusable_files_raise_errors(tmp_path: Path):
    with pytest.raises(FileError, match="No such file"):
        Jobs().load_from_file(tmp_path / "missing")
    with pytest.raises(FileError, match="cannot be written"):
        Jobs().save_to_file(tmp_path / "no" / "such")
    for text in ("{", "7", '["a"]', '[{"name": "a"}]', "\xff", f"[{'9' * 5000}]", "[" * 100_000):
        (tmp_path / "wrong").write_text(text, encoding="latin-1")
        with pytest.raises(InvalidJobDescriptionError):
            Jobs().load_from_file(tmp_path / "wrong")


def test_the_names_of_version_0_2_are_accepted(tmp_path: Path):
    jobs = OldJobs().add({"name": "a", "exec": "true"}).addStd({"name": "b", "execution": {"exec": "true"}})
    assert jobs.jobNames() == ["a", "b"]
    jobs.saveToFile(tmp_path / "jobs.json")
    again = OldJobs()
    again.loadFromFile(tmp_path / "jobs.json")
    assert again.jobNames() == ["a", "b"]
    with pytest.raises(JobNotDefined):
        jobs.remove("c")
    with pytest.raises(InvalidJobDescription):
        jobs.addStd({"name": "c"})


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            {"execution": {"exec": "ls"}},
            "job.execution: unknown key; that is the standard form: in a program, use add_std",
        ),
        (
            {"exec": "ls", "dependencies": {"after": ["b"]}},
            'job.dependencies: unknown key; in the simple form it is "after"',
        ),
        ({"exec": "ls", "script": "ls"}, "job: "),
        ({"exec": "ls", "wt": "soon"}, 'job.wt: "soon" is not a wall time'),
    ],
)
def test_errors_name_the_path_in_the_simple_form(job: dict[str, Any], message: str):
    with pytest.raises(InvalidJobDescriptionError) as caught:
        Jobs().add(name="a", **job)
    assert str(caught.value).startswith(message)
