"""Shell completion."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.main import COMMANDS, main
from qcg.pilotjob.core.job_states import State
from tests.cli.test_runs import new_run
from tests.support.pilot import environment

PRESS_TAB = """
eval "$(qcg-pm completion bash)"
program=$1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_${program//-/_}_completion" "$program"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tab(cwd: Path, *words: str) -> list[str]:
    """What bash offers when Tab is pressed behind these words."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", PRESS_TAB, "-", *words],
        cwd=cwd,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout.split()


def offered(cwd: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[tuple[str, str]]:
    """The completions of the program for a shell, as pairs of kind and text, without starting the shell."""
    monkeypatch.chdir(cwd)
    line = " ".join(words)
    done = CliRunner().invoke(
        main,
        prog_name="qcg-pm",
        env={"_QCG_PM_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    pairs = [line.partition(",") for line in done.stdout.splitlines()]
    return [(kind, text) for kind, _, text in pairs]


def names(cwd: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    return [text for kind, text in offered(cwd, monkeypatch, *words) if kind == "plain"]


def test_bash_completes_commands_options_and_job_names(tmp_path: Path):
    new_run(tmp_path, "over", State.SUCCEED, State.FAILED)
    assert tab(tmp_path, "qcg-pm", "val") == ["validate"]
    assert tab(tmp_path, "qcg-pm", "run", "--limit-nodes-range-b") == ["--limit-nodes-range-begin"]
    assert tab(tmp_path, "qcg-pm", "why", "j") == ["j1", "j2"]
    assert tab(tmp_path, "qcg-pm-service", "--resources", "sl") == ["slurm"]
    assert tab(tmp_path, "qcg-pm-client", "--on-l") == ["--on-lost"]


def test_tab_on_a_terminal_completes_the_line(tmp_path: Path):
    new_run(tmp_path, "over", State.SUCCEED)
    main_end, child_end = pty.openpty()
    env = environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}", TERM="dumb", PS1="$ ")
    line = ["bash", "--norc", "--noprofile", "-i"]
    with subprocess.Popen(
        line, stdin=child_end, stdout=child_end, stderr=child_end, cwd=tmp_path, env=env, start_new_session=True
    ) as shell:
        os.close(child_end)
        shown = ""

        def type_and_expect(keys: str, text: str) -> None:
            nonlocal shown
            shown = ""
            os.write(main_end, keys.encode())
            while text not in shown:
                assert select.select([main_end], [], [], 60)[0], f"{text!r} does not come; shown: {shown!r}"
                shown += os.read(main_end, 4096).decode()

        type_and_expect('eval "$(qcg-pm completion bash)"; echo rea""dy\n', "ready")
        type_and_expect("qcg-pm st\t", "qcg-pm status ")
        type_and_expect("\x15qcg-pm why j\t", "qcg-pm why j1 ")
        os.write(main_end, b"\x15exit\n")
        shell.wait(60)
    os.close(main_end)


def test_names_come_from_the_run_with_a_live_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with LocalManager(["--cores", "1", "--wd", str(tmp_path)], {"log_file": ""}) as manager:
        jobs = Jobs().add(name="alpha", exec="sleep", args=["1000"]).add(name="beta", exec="true", after="alpha")
        manager.submit(jobs)
        new_run(tmp_path, "newer", State.SUCCEED, age=-3600)
        assert names(tmp_path, monkeypatch, "qcg-pm", "why", "") == ["alpha", "beta"]
        assert names(tmp_path, monkeypatch, "qcg-pm", "why", "alpha", "") == ["beta"]
        assert names(tmp_path, monkeypatch, "qcg-pm", "cancel", "b") == ["beta"]
        assert names(tmp_path, monkeypatch, "qcg-pm", "remove", "") == []
        manager.cancel(["alpha", "beta"])


@pytest.mark.parametrize("command", ["jobs", "info", "why", "wait", "logs"])
def test_every_command_that_takes_names_completes_them(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    new_run(tmp_path, "left", State.SUCCEED, State.QUEUED)
    assert names(tmp_path, monkeypatch, "qcg-pm", command, "") == ["j1", "j2"]


def test_completion_offers_only_jobs_that_the_command_applies_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    new_run(tmp_path, "left", State.SUCCEED, State.QUEUED)
    assert names(tmp_path, monkeypatch, "qcg-pm", "remove", "") == ["j1"]
    assert names(tmp_path, monkeypatch, "qcg-pm", "cancel", "") == ["j2"]


def test_names_come_from_the_directory_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = tmp_path / "there"
    there.mkdir()
    new_run(there, "over", State.SUCCEED)
    assert names(tmp_path, monkeypatch, "qcg-pm", "why", "") == []
    assert names(tmp_path, monkeypatch, "qcg-pm", "why", "-p", "there", "") == ["j1"]
    assert names(tmp_path, monkeypatch, "qcg-pm", "-p", "there", "why", "") == ["j1"]
    monkeypatch.setenv("QCG_PJM_DIR", str(there))
    assert names(tmp_path, monkeypatch, "qcg-pm", "why", "") == ["j1"]


def test_names_that_a_shell_would_not_take_for_one_word_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run_dir = new_run(tmp_path, "over", *[State.SUCCEED] * 4)
    with contextlib.closing(sqlite3.connect(run_dir / "registry.sqlite", isolation_level=None)) as registry:
        for seq, name in ((1, "a;id"), (2, "a$HOME"), (3, "a\x1b[31m"), (4, "a-b.c_d")):
            registry.execute("UPDATE submitted_jobs SET name = ? WHERE seq = ?", (name, seq))
    assert names(tmp_path, monkeypatch, "qcg-pm", "why", "") == ["a-b.c_d"]


def test_unreadable_registries_offer_no_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_dir = new_run(tmp_path, "damaged", State.SUCCEED)
    (run_dir / "registry.sqlite").write_bytes(b"no database" * 1000)
    assert names(tmp_path, monkeypatch, "qcg-pm", "why", "") == []
    assert names(tmp_path, monkeypatch, "qcg-pm", "-p", "nowhere", "why", "") == []


@pytest.mark.parametrize(
    "words",
    [
        ("run", "r"),
        ("validate", "r"),
        ("submit", "r"),
        ("sbatch", "r"),
        ("./r",),
        ("run", "--wd", "r"),
        ("status", "-p", "r"),
        ("submit", "--", "r"),
    ],
)
def test_files_are_completed_by_the_shell_itself(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert offered(tmp_path, monkeypatch, "qcg-pm", *words) == [("file", words[-1])]


def test_run_directories_are_offered_for_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    new_run(tmp_path, "one", State.QUEUED)
    sub = tmp_path / "sub"
    sub.mkdir()
    new_run(sub, "two", State.QUEUED)
    assert names(tmp_path, monkeypatch, "qcg-pm", "run", "--resume", "") == [".qcgpjm-service-one"]
    assert names(tmp_path, monkeypatch, "qcg-pm", "run", "--resume", "sub/.q") == ["sub/.qcgpjm-service-two"]
    assert offered(tmp_path, monkeypatch, "qcg-pm", "run", "--resume", "su") == [("dir", "su")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_enables_every_program(shell: str):
    done = CliRunner().invoke(main, ["completion", shell], prog_name="qcg-pm")
    assert done.exit_code == 0, done.output
    for variable in ("_QCG_PM_COMPLETE", "_QCG_PM_SERVICE_COMPLETE", "_QCG_PM_CLIENT_COMPLETE"):
        assert f"{variable}={shell}_complete" in done.stdout


def test_every_command_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert names(tmp_path, monkeypatch, "qcg-pm", "") == list(COMMANDS)
