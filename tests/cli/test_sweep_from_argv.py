"""Iterations from a command line in the manner of GNU parallel."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cli.job_from_argv import JobOptionError
from qcg.pilotjob.cli.sweep_from_argv import Sweep, Words, commands_sweep, split_words, sweep_of
from tests.cli.conftest import Pm


@pytest.mark.parametrize(
    ("words", "split"),
    [
        (["--wait"], Words(["--wait"], [], [])),
        (["-c", "2", "--", "prog", "--", "x"], Words(["-c", "2"], ["prog", "--", "x"], [])),
        (["--", "prog", ":::", "a", "--"], Words([], ["prog"], [":::", "a", "--"])),
        (["--wait", ":::", "a", "--", "b"], Words(["--wait"], [], [":::", "a", "--", "b"])),
    ],
)
def test_a_command_line_is_split_into_options_program_and_values(words: list[str], split: Words):
    assert split_words(words) == split


@pytest.mark.parametrize(
    ("program", "values", "sweep"),
    [
        (["prog"], ["a", "b"], Sweep(["prog", "${itval}"], None, {"values": ["a", "b"]})),
        (["prog", "-x{}", "{1}"], ["a"], Sweep(["prog", "-x${itval}", "${itval}"], None, {"values": ["a"]})),
        (
            ["sh", "-c", "echo ${1} {print}"],
            ["a"],
            Sweep(["sh", "-c", "echo ${1} {print}", "${itval}"], None, {"values": ["a"]}),
        ),
        (
            ["prog"],
            ["a", "b", ":::", "1"],
            Sweep(["prog", "${arg1}", "${arg2}"], None, {"product": {"arg1": ["a", "b"], "arg2": ["1"]}}),
        ),
        (
            ["prog", "{2}/{1}", "{}"],
            ["a", ":::+", "1"],
            Sweep(["prog", "${arg2}/${arg1}", "${arg1} ${arg2}"], None, {"zip": {"arg1": ["a"], "arg2": ["1"]}}),
        ),
        ([], ["ls -l", "true"], Sweep([], "${itval}", {"values": ["ls -l", "true"]})),
        ([], ["ls", ":::", "-l"], Sweep([], "${arg1} ${arg2}", {"product": {"arg1": ["ls"], "arg2": ["-l"]}})),
    ],
)
def test_values_become_iterations(program: list[str], values: list[str], sweep: Sweep):
    assert sweep_of(program, [":::", *values]) == sweep


@pytest.mark.parametrize(
    ("program", "values", "message"),
    [
        (["prog"], [":::"], "there are no values after :::"),
        (["prog"], [":::", "a", ":::+"], "there are no values after :::+"),
        (["prog"], [":::+", "a"], "begin with :::"),
        (["prog"], [":::", "a", ":::", "b", ":::+", "c"], "use one or the other"),
        (["prog"], [":::", "a", "b", ":::+", "c"], "equally many; these have 2, 1"),
        (["prog", "{2}"], [":::", "a"], "and there are 1"),
        (["prog", "{0}"], [":::", "a"], "and there are 1"),
        (
            ["prog", "x{.}"],
            [":::", "a"],
            """{.} is not supported; for the value without its ending: -- sh -c 'PROGRAM""",
        ),
        (["prog", "{1/}"], [":::", "a"], """without its directory: -- sh -c 'PROGRAM "${1##*/}"' sh {}"""),
        (["prog", "{//}"], [":::", "a"], """PROGRAM "$(dirname "$1")"'"""),
        (["prog", "{}", "{/.}"], [":::", "a"], "without its directory and ending"),
    ],
)
def test_values_that_make_no_sense_are_refused(program: list[str], values: list[str], message: str):
    with pytest.raises(JobOptionError) as error:
        sweep_of(program, values)
    assert message in str(error.value)


def test_empty_lines_and_comments_are_no_commands():
    assert commands_sweep(["a 1", "", "  # b", "c # d", " "]).iteration == {"values": ["a 1", "c # d"]}
    with pytest.raises(JobOptionError):
        commands_sweep(["", "# a"])


def test_each_row_of_a_file_is_an_iteration(pm: Pm, wd: Path):
    (wd / "params.csv").write_text('T,label\n250,"a b"\n300,c\n')
    pm("submit", "--each", "params.csv", "--name", "rows", "--wait", "--", "printf", "%s|", "${row.T}", "${row.label}")
    assert [(wd / f"rows.{index}.out").read_text() for index in (0, 1)] == ["250|a b|", "300|c|"]


def test_a_program_that_uses_no_column_causes_a_warning(pm: Pm, wd: Path):
    (wd / "params.csv").write_text("p,T\n1,250\n2,300\n")
    done = pm("submit", "--each", "params.csv", "--name", "rows", "--wait", "--", "echo", "T={T}")
    assert done.stderr == (
        "Warning: job 'rows': no parameter of params.csv is used; write ${row.T} for the value of column T\n"
    )


def test_values_without_their_ending_come_from_a_shell(pm: Pm, wd: Path):
    pm("submit", "--name", "ends", "--wait", "--", "sh", "-c", 'echo "${1%.*}"', "sh", "{}", ":::", "a b.txt")
    assert (wd / "ends.0.out").read_text() == "a b\n"


def test_values_reach_the_program_unchanged(pm: Pm, wd: Path):
    values = ["a b", "", "$HOME", "${it}", "*", "--", "-n", '"', "ü"]
    pm("submit", "--name", "values", "--wait", "--", "printf", "%s|", ":::", *values)
    assert [(wd / f"values.{index}.out").read_text() for index in range(9)] == [f"{value}|" for value in values]


def test_commands_run_in_a_shell(pm: Pm, wd: Path):
    pm("submit", "--name", "given", "--wait", ":::", "echo a | tr a b", "echo ${HOME:+x}")
    assert [(wd / f"given.{index}.out").read_text() for index in (0, 1)] == ["b\n", "x\n"]
    pm("submit", "--name", "lines", "--wait", "--commands", "-", input="echo 1\n\n# no\necho '2  3'")
    assert [(wd / f"lines.{index}.out").read_text() for index in (0, 1)] == ["1\n", "2  3\n"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--each", "a.csv", "--iteration", "2", "--", "x"], 2, "--iteration and --each exclude each other"),
        (["--each", "a.csv", "--", "x", ":::", "a"], 2, "--each and ::: exclude each other"),
        (["--each", "a.csv"], 2, "give a FILE of jobs, or a program after --"),
        (["--commands", "-", "--", "x"], 2, "--commands has the commands itself; leave out the program"),
        (["echo", ":::", "a"], 2, "write: qcg-pm submit … -- echo"),
        (["--", "echo", ":::"], 2, "there are no values after :::"),
        (["--", "echo", "{}", "::::", "params.csv"], 2, ":::: is not supported; write --each FILE"),
        (["::::", "params.csv"], 2, ":::: is not supported; write --each FILE"),
        (["--commands", "missing.txt"], 2, "missing.txt cannot be read: No such file or directory"),
        (["--each", "missing.csv", "--", "x"], 1, "missing.csv cannot be read: No such file or directory"),
        (["--each", "bad.csv", "--", "x"], 1, "bad.csv, line 2: has 1 value; the file has 2 columns: T, p"),
    ],
)
def test_a_wrong_sweep_is_refused_with_a_sentence(pm: Pm, wd: Path, arguments: list[str], code: int, message: str):
    (wd / "bad.csv").write_text("T,p\n1\n")
    assert message in pm("submit", *arguments, code=code).stderr


def test_commands_where_json_is_expected_are_refused_with_the_option_for_them(pm: Pm):
    assert "for one command a line, write --commands -" in pm("submit", "-", code=2, input="echo a\n").stderr


def test_commands_that_are_not_utf_8_are_refused_with_their_line(pm: Pm, wd: Path):
    (wd / "latin.txt").write_bytes(b"echo a\necho \xe4\n")
    assert "latin.txt, line 2: is not UTF-8 text" in pm("submit", "--commands", "latin.txt", code=2).stderr
