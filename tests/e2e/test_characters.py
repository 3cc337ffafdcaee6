"""Arguments, variables and paths with any characters reach jobs unchanged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.pilot import environment, job, run_requests

SHOW = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], sys.stdout)"

NASTY = [
    "",
    " ",
    "a b",
    "  two  spaces  ",
    "'",
    '"',
    "\\",
    "\\n",
    "\n",
    "a\nb\n",
    "\t",
    "$",
    "$$",
    "$x",
    "$HOME",
    "${HOME}",
    "$(id)",
    "`id`",
    "*",
    "?[a]",
    "~",
    "{a,b}",
    "a;b",
    "a&b|c>d<e",
    "#",
    "!",
    "-n",
    "--",
    "%s%d",
    "é ü ß",
    "日本語",
    "🚀",
    '{"json": "\\"quoted\\""}',
    "' \" \\ $x $$ ${y} `z`",
    "\x01\x7f",
]


def shown(path: Path) -> tuple[list[str], dict[str, str], str]:
    arguments, variables, wd = json.loads(path.read_text())
    return arguments, variables, wd


def show(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    return job(name, sys.executable, "-c", SHOW, *arguments, stdout=f"{name}.json", **more)


def test_arguments_variables_and_paths_are_exact(tmp_path: Path):
    env = {f"NASTY_{number}": value for number, value in enumerate(NASTY)}
    wd = "wd 'with' \"quotes\" $x \\ und Ümläut"
    (tmp_path / "stdin 'q' $$").write_text("from stdin\n")
    done = run_requests(
        tmp_path,
        [
            show("plain", *NASTY, env=env),
            show("empty-setup", *NASTY, venv="", modules=[]),
            show("empty-modules", *NASTY, modules=""),
            show("placed", wd=wd),
            job("cat", "cat", stdin="stdin 'q' $$", stdout="out \"q\" 'r' $y ü"),
            job("values", sys.executable, "-c", SHOW, "${itval}", iteration={"values": NASTY}, stdout="v.${it}.json"),
        ],
    )
    assert set(done.states.values()) == {"SUCCEED"}
    for name in ("plain", "empty-setup", "empty-modules"):
        assert shown(tmp_path / f"{name}.json")[0] == NASTY, name
    _, variables, _ = shown(tmp_path / "plain.json")
    assert {key: variables[key] for key in env} == env
    assert shown(tmp_path / wd / "placed.json")[2] == str(tmp_path / wd)
    assert (tmp_path / "out \"q\" 'r' $y ü").read_text() == "from stdin\n"
    assert [shown(tmp_path / f"v.{number}.json")[0] for number in range(len(NASTY))] == [[value] for value in NASTY]


def test_variables_are_replaced_in_each_value(tmp_path: Path):
    script = r"""
    x='single "double" \back'
    printf '%s\n' "$x" "$$" '${x}' "${x}" "$(echo "inner ' quote")" "${it}" "${ it }" '$${it}' '$$$${it}' "${#x}" "üñí"
    printf '%s' "multi
line"
    """
    done = run_requests(
        tmp_path,
        [
            job("script", script=script, iteration={"start": 7, "stop": 8}, stdout="script.out"),
            show("known", "${ncores}", "${ nnodes }", "${nlist}", "${root_wd}", "${jname}", "$${jname}", "${other}"),
            show("early", "${it}|${rcnt}|${sname}"),
        ],
    )
    assert set(done.states.values()) == {"SUCCEED"}, done.done.stdout
    lines = (tmp_path / "script.out").read_text().split("\n")
    pid = done.report["script:7"]["runtime"]["pid"]
    x = 'single "double" \\back'
    assert lines == [x, pid, "${x}", x, "inner ' quote", "7", "7", "7", "${it}", str(len(x)), "üñí", "multi", "line"]
    known = ["1", "1", "n0", str(tmp_path), "known", "known", "${other}"]
    assert shown(tmp_path / "known.json")[0] == known
    early = shown(tmp_path / "early.json")[0][0].split("|")
    assert early[0] == "${it}"
    assert early[1] == "1"


def test_a_misspelt_variable_is_a_warning_and_a_value_that_grows_too_long_fails_the_job(tmp_path: Path):
    name = "n" * 100
    done = run_requests(
        tmp_path,
        [job("slip", "echo", "${itt}", iteration=1), job("long", "echo", "${nlist}" * 11_000, iteration=1)],
        options=("--nodes", f"{name}:2"),
    )
    assert "Warning: job 'slip': ${itt} is no variable and stays as it is; did you mean ${it}?" in done.done.stderr
    assert done.states["slip"] == "SUCCEED"
    assert done.states["long:0"] == "FAILED"
    assert "the values of its variables have more than 1048576 characters" in done.report["long:0"]["messages"]


def test_time_and_uniq_are_those_of_each_request_job_and_iteration(tmp_path: Path):
    arguments = ["${uniq}", "${date} ${time}", "${dateTime}", "${rcnt}"]
    done = run_requests(
        tmp_path,
        [show("a", *arguments), show("b", *arguments)],
        [job("it", sys.executable, "-c", SHOW, *arguments, iteration=3, stdout="it.${it}.json")],
        [job("id-${uniq}", "true"), job("n-${rcnt}", "true")],
    )
    assert set(done.states.values()) == {"SUCCEED"}
    found = [shown(tmp_path / f"{name}.json")[0] for name in ("a", "b", "it.0", "it.1", "it.2")]
    assert len({uniq for uniq, *_ in found}) == 5
    assert all(both == date_time for _, both, date_time, _ in found)
    assert [rcnt for *_, rcnt in found] == ["1", "1", "2", "2", "2"]
    assert "n-3" in done.states


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, str]:
    """An environment in which the modules `tool/1.0` and `broken` can be loaded, and the second cannot."""
    if not Path("/usr/share/modules/init/bash").exists():
        pytest.skip("environment-modules is not installed")
    folder = tmp_path / "modulefiles"
    (folder / "tool").mkdir(parents=True)
    (folder / "tool/1.0").write_text("#%Module1.0\nsetenv TOOL \"from 'module'\"\nprepend-path PATH /tool/bin\n")
    (folder / "broken").write_text("#%Module1.0\nno-such-command\n")
    return environment(MODULEPATH=str(folder))


def test_modules_and_venv_are_loaded_and_arguments_stay_exact(
    tmp_path: Path, modules: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MODULEPATH", modules["MODULEPATH"])
    venv = tmp_path / "a 'virtual' env"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/activate").write_text('VIRTUAL_ENV="$PWD"; export VIRTUAL_ENV; PATH="$PWD/x:$PATH"; export PATH\n')
    script = 'printf "%s|" "$TOOL" "$@" "a  b"'
    done = run_requests(
        tmp_path,
        [
            show("module", *NASTY, modules=["tool/1.0"]),
            show("string", *NASTY, modules="tool"),
            show("venv", *NASTY, venv=str(venv)),
            show("both", *NASTY, modules="tool", venv=str(venv), env={"TOOL": "mine"}),
            job("script", script=script, modules="tool", stdout="script.out"),
            job("uses", script="module load tool/1.0; echo $TOOL", stdout="uses.out"),
            job("missing", "true", modules=["tool", "no/such"], stderr="missing.err"),
            job("broken", "true", modules=["broken"]),
            job("no-venv", "true", venv="/no/such/venv"),
            job("no-program", "no-such-program", modules="tool"),
        ],
    )
    report = done.report
    for name in ("module", "string", "venv", "both"):
        assert done.states[name] == "SUCCEED", report[name]["messages"]
        assert shown(tmp_path / f"{name}.json")[0] == NASTY, name
    assert shown(tmp_path / "module.json")[1]["TOOL"] == "from 'module'"
    assert shown(tmp_path / "both.json")[1]["VIRTUAL_ENV"] == str(tmp_path)
    assert (tmp_path / "script.out").read_text() == "from 'module'|a  b|"
    assert (tmp_path / "uses.out").read_text() == "from 'module'\n"
    said = {name: report[name]["messages"] for name in ("missing", "broken", "no-venv", "no-program")}
    assert "module 'no/such' could not be loaded; its stderr says why" in said["missing"]
    assert "no/such" in (tmp_path / "missing.err").read_text()
    assert "module 'broken' could not be loaded; its stderr says why" in said["broken"]
    (kept,) = tmp_path.glob(".qcgpjm-service-*/out/broken.err")
    assert "no-such-command" in kept.read_text()
    assert "/no/such/venv" in said["no-venv"]
    assert "no-such-program" in said["no-program"]
    assert {done.states[name] for name in said} == {"FAILED"}


def test_iterations_of_programs_for_earlier_versions_keep_their_own_directories(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [job("old", script="echo $${it}", iteration=3, wd="run_$${it}", stdout="$${jname}.out")],
        [job("part_$${it}", "true", iterate=[0, 2], after=["old:$${it}"])],
    )
    assert set(done.states.values()) == {"SUCCEED"}, done.done.stdout
    assert {"part_0", "part_1"} <= done.states.keys()
    assert [(tmp_path / f"run_{it}/old.out").read_text() for it in range(3)] == ["0\n", "1\n", "2\n"]
