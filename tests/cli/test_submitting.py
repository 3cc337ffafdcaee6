"""Output and warnings of `qcg-pm submit`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.commands.client import own_arguments
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cli.offline_client import final_states
from tests.cli.conftest import Pm

AS_GIVEN = ["--nodes", "a,", "b", "--nodes=1,", ",2"]


def test_arguments_of_a_program_are_left_as_they_are(pm: Pm, wd: Path):
    pm("submit", "--nodes", "1", "--name", "args", "--wait", "--", "printf", "%s|", *AS_GIVEN)
    assert (wd / "args.out").read_text() == "".join(f"{argument}|" for argument in AS_GIVEN)


@pytest.mark.parametrize(
    ("own", "rest"),
    [
        ([], ["prog.py", *AS_GIVEN]),
        (["--nodes", "n1:4,", "n2:4"], ["prog.py", *AS_GIVEN]),
        (["--nodes", "n1:4", ",", "n2:4", "--wd", "x"], ["prog.py", *AS_GIVEN]),
        (["--nodes=n1:4,", "n2:4", "--system-core"], ["prog.py", "--wd", "y"]),
        (["--log", "debug"], ["prog.py,", "x"]),
        (["--nodes"], []),
    ],
)
def test_the_arguments_of_the_client_end_before_its_program(own: list[str], rest: list[str]):
    assert own_arguments([*own, *rest]) == len(own)


def test_waiting_with_json_prints_one_answer(pm: Pm):
    done = pm("submit", "--name", "one", "--wait", "--json", "--", "true")
    assert json.loads(done.stdout) == {"one": "SUCCEED"}


def test_a_misspelt_variable_is_a_warning(pm: Pm):
    done = pm("submit", "--name", "slip", "--iteration", "2", "--wait", "--", "echo", "${itt}")
    assert done.stderr.startswith("Warning: job 'slip': ${itt} is no variable and stays as it is; did you mean ${it}?")
    assert "Warning" not in pm("submit", "--name", "fine", "--iteration", "2", "--", "echo", "${it} ${HOME}").stderr


@pytest.mark.parametrize(
    ("program", "warning"),
    [
        (["python model.py"], '"python model.py" is one word, the name of a program; leave out its quotes, or write:'
         " -- sh -c 'python model.py'"),
        (["cd", "/tmp"], "cd is a command of the shell and no program; write: -- sh -c 'cd /tmp'"),
        (["sh", "-c", "true ; true"], ""),
    ],
)  # fmt: skip
def test_a_shell_command_as_program_is_a_warning(pm: Pm, program: list[str], warning: str):
    told = pm("submit", "--", *program).stderr
    assert told == (f"Warning: {warning}\n" if warning else "")


def test_several_names_without_commas_are_refused_with_the_right_form(pm: Pm):
    told = pm("submit", "--after", "h1", "h2", "--", "true", code=2).stderr
    assert "several names are separated by commas: --after h1,h2\n" in told
    assert "not both" in pm("submit", "h2", "--", "true", code=2).stderr


def test_a_range_of_iterations_is_refused_with_the_right_form(pm: Pm):
    told = pm("submit", "--iteration", "1-10", "--", "true", code=2).stderr
    assert "'1-10' is not a whole number; --iteration 10 runs it for ${it} from 0 to 9, and ::: {1..10} for" in told


def test_several_arguments_in_one_string_are_a_warning(pm: Pm, wd: Path):
    jobs = [{"name": "words", "exec": "echo", "args": "--T 3"}, {"name": "word", "exec": "echo", "args": "3"}]
    (wd / "words.json").write_text(json.dumps(jobs))
    assert pm("submit", "words.json").stderr == (
        "Warning: job 'words': args: \"--T 3\" is one argument with blanks in it; write a list for several\n"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_jobs_accepted_before_a_refusal_are_printed(pm: Pm, wd: Path, as_json: bool):
    good = {"name": f"good{as_json}", "execution": {"exec": "true"}}
    requests = [{"request": "submit", "jobs": [good]}, {"request": "submit", "jobs": [good]}]
    (wd / "requests.json").write_text(json.dumps(requests))
    options = ["--json"] if as_json else []
    done = pm("submit", *options, "requests.json", code=1)
    told = json.loads(done.stdout)["jobs"] if as_json else done.stdout.split()
    assert told == [good["name"]]
    assert "submit 2 of 2 in requests.json was refused" in done.stderr
    assert "The submits before it were accepted, with 1 job" in done.stderr


def test_gpus_named_resources_and_streams_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.chdir(tmp_path)
    options = ("--gpus", "0.5", "--named", "license=2", "--named", "fpga=1", "--stream-output")
    program = ("bash", "-c", 'echo "GPU $CUDA_VISIBLE_DEVICES"; echo gone >&2')
    with LocalManager(["--resource", "license=2", "--resource", "fpga=1", "--share-cores"]):
        call("submit", "--name", "shared", *options, "--wait", "--", *program)
        info = json.loads(call("info", "shared", "--json"))["shared"]
        assert info["runtime"]["named"] == "0.5 of GPU 4, 1 fpga, 2 license"
        assert call("logs", "shared") == "GPU 4\n"
        assert call("logs", "shared", "--stderr") == "gone\n"
    assert not list(tmp_path.glob("shared*"))


def call(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments, prog_name="qcg-pm")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("option", ["--input", "--output"])
def test_files_are_staged_for_remote_jobs_only(pm: Pm, option: str):
    done = pm("submit", option, "a.csv", "--", "true", code=2)
    assert f"{option} is for jobs on remote hosts; give --host too" in done.stderr


def test_a_job_for_an_unknown_host_is_refused(pm: Pm):
    done = pm("submit", "--host", "wizard", "--input", "a.csv", "--", "true", code=1)
    assert "no remote host" in done.stderr


def test_an_impossible_iteration_is_unknown_in_an_ended_run(tmp_path: Path):
    with LocalManager(["--nodes", "1", "--wd", tmp_path], {"log_file": ""}) as manager:
        manager.wait4(manager.submit(Jobs().add(name="many", exec="true", iteration=2)))
        run_dir = manager.run_dir
    assert run_dir is not None
    assert final_states(run_dir, ["many:1"]) == ({"many:1": "SUCCEED"}, ({}, {}))
    for name in ("many:x", "many:7", "many:-1", "many:", "many:1:1"):
        assert final_states(run_dir, [name]) is None
