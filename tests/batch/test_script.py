"""The batch script and options of `sbatch`: quoting, and options that users give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.batch import __main__ as batch_main
from qcg.pilotjob.batch.script import ScriptCommand, batch_script
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.options import directives, environment, further_options, has_option


def command(**changes: Any) -> ScriptCommand:
    given: dict[str, Any] = {
        "python": "/opt/env/bin/python",
        "python_path": "",
        "wd": "/home/me",
        "state": "/home/me/.notes",
        "run_dir": "/home/me/.run",
        "most": 3,
        "run": ["/home/me/jobs.json", "--wd=/home/me"],
    }
    return ScriptCommand(**{**given, **changes})


def test_the_script_has_the_options_and_one_command():
    assert batch_script(directives(["--nodes=4", "--no-kill"]), command()).splitlines() == [
        "#!/bin/bash",
        "#SBATCH --nodes=4",
        "#SBATCH --no-kill",
        "",
        "cd -- /home/me || exit 2",
        "# Runs the requests, or continues the run: in a further allocation, or after this job was queued again.",
        "exec /opt/env/bin/python -m qcg.pilotjob.batch --state-dir=/home/me/.notes --run-dir=/home/me/.run"
        " --max-allocations=3 -- \\",
        "    /home/me/jobs.json --wd=/home/me",
    ]


@pytest.mark.parametrize("options", [("--state-dir", "--max-allocations"), ("--books", "--most")])
def test_options_of_this_version_and_of_earlier_scripts_are_accepted(
    options: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    given: list[Any] = []

    class Runner:
        def __init__(self, *arguments: Any) -> None:
            given.extend(arguments[:4])

        def run(self) -> int:
            return 4

    chain, most = options
    words = [f"{chain}=/home/me/.notes", "--run-dir=/home/me/.run", f"{most}=3", "--", "jobs.json", "--wd=/home/me"]
    monkeypatch.setattr(batch_main, "AllocationRunner", Runner)
    monkeypatch.setattr(sys, "argv", ["batch", *words])
    with pytest.raises(SystemExit) as end:
        batch_main.main()
    assert end.value.code == 4
    assert given == [Path("/home/me/.notes"), Path("/home/me/.run"), 3, ["jobs.json", "--wd=/home/me"]]


AWKWARD = ["two words", "it's", 'say "x"', "$HOME `id`", "back\\slash", "#no comment", "ä ö", "-- x", "*"]


@pytest.mark.parametrize("text", AWKWARD)
def test_arguments_and_paths_reach_the_command_as_they_are(text: str):
    script = batch_script([], command(wd="/", python="/bin/echo", python_path=text, run=[text, f"--wd={text}"]))
    printing = script.replace("exec /bin/echo", "printf '%s\\0' \"$PYTHONPATH\"; exec printf '%s\\0'")
    printed = subprocess.run(["bash", "-c", printing], capture_output=True, check=True).stdout.decode().split("\0")
    assert printed[0] == text
    assert printed[-3:] == [text, f"--wd={text}", ""]


@pytest.mark.parametrize("name", AWKWARD)
def test_the_script_changes_to_the_working_directory_wherever_it_is_started(tmp_path: Path, name: str):
    wd = tmp_path / name
    wd.mkdir()
    script = batch_script([], command(wd=str(wd))).replace("exec /opt/env/bin/python", "pwd; exit #")
    assert subprocess.run(["bash", "-c", script], cwd="/", capture_output=True, text=True).stdout == f"{wd}\n"


def test_a_script_without_its_working_directory_starts_nothing(tmp_path: Path):
    script = batch_script([], command(wd=str(tmp_path / "gone"), python="/bin/echo"))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_options_of_several_lines_are_refused():
    with pytest.raises(BatchError, match="several lines"):
        directives(["--comment=a\nb"])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], []),
        (["--constraint=fast", "--begin", "now+1hour"], ["--constraint=fast", "--begin=now+1hour"]),
        (["--hold", "--comment", "two words"], ["--hold", "--comment=two words"]),
        (["-C", "fast", "-Cslow"], ["-Cfast", "-Cslow"]),
    ],
)
def test_further_options_may_be_given_in_one_word_or_two(words: list[str], options: list[str]):
    assert further_options(words) == options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fast"], "'fast' is no option of sbatch"),
        (["--constraint=fast", "slow"], "'slow' is no option of sbatch"),
        (["--array=1-3"], "--array makes no sense for a run: it would run the same jobs several times at once"),
        (["-a", "1-3"], "-a makes no sense"),
        (["--chdir", "/x"], "give --wd"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], message: str):
    with pytest.raises(BatchError, match=message):
        further_options(words)


def test_an_option_is_found_with_its_value_or_without():
    assert has_option(["--hold", "--ntasks=4"], "--ntasks")
    assert has_option(["--hold", "--ntasks=4"], "--hold")
    assert has_option(["-n4"], "--ntasks", "-n")
    assert not has_option(["--ntasks-per-node=4"], "--ntasks")
    assert not has_option(["--nodes=4"], "-n")


def test_options_overrule_variables_and_variables_of_an_allocation_are_dropped():
    environ = {
        "SBATCH_PARTITION": "default",
        "SBATCH_ACCOUNT": "mine",
        "SLURM_CONF": "/etc/other.conf",
        "SLURM_JOB_ID": "12",
        "SLURM_RESTART_COUNT": "1",
        "HOME": "/home/me",
    }
    kept = {"SBATCH_ACCOUNT": "mine", "SLURM_CONF": "/etc/other.conf", "HOME": "/home/me"}
    assert environment(environ, ["--partition=fast"]) == kept
