"""How commands find the manager, and their errors without one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.target import find_target
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact

AGENTS = AgentsContact("tcp://127.0.0.1:1", "k", "k", "k")
CLIENTS = ClientsContact("tcp://127.0.0.1:1")


def make_run(directory: Path, name: str, *, alive: bool = True, net: bool = True, age: float = 0.0) -> Path:
    """A run whose manager is this process, or was."""
    run = directory / f".qcgpjm-service-{name}"
    run.mkdir(mode=0o700)
    process = read_process(os.getpid())
    assert process is not None
    began = process.start_ticks if alive else process.start_ticks - 1
    contact.write(run, Contact(os.getpid(), began, socket.gethostname(), AGENTS, CLIENTS if net else None))
    os.utime(run, (1e9 - age, 1e9 - age))
    return run


def found_in(directory: Path) -> Path | None:
    return find_target(None, {}, str(directory)).run_dir


def test_the_newest_live_run_of_a_working_directory_is_used(tmp_path: Path):
    make_run(tmp_path, "old", age=30)
    wanted = make_run(tmp_path, "live", age=20)
    make_run(tmp_path, "silent", net=False, age=10)
    make_run(tmp_path, "dead", alive=False)
    assert found_in(tmp_path) == wanted


def test_a_run_directory_is_found_as_itself(tmp_path: Path):
    wanted = make_run(tmp_path, "one", age=10)
    make_run(tmp_path, "other")
    assert found_in(wanted) == wanted


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ["there is no run", "--path DIR", "QCG_PJM_DIR"]),
        ([{"alive": False}], ["has died", "--resume"]),
        ([{"net": False}], ["has no network interface", "--no-net"]),
    ],
)
def test_the_error_without_a_manager_says_what_to_do(runs: list[dict[str, bool]], words: list[str], tmp_path: Path):
    for number, run in enumerate(runs):
        make_run(tmp_path, str(number), **run)
    said = CliRunner().invoke(main, ["resources", "-p", str(tmp_path)])
    assert said.exit_code == 2
    assert [word for word in [str(tmp_path), *words] if word not in said.output] == []


def test_the_error_reports_a_run_whose_manager_has_ended(tmp_path: Path):
    contact.remove(make_run(tmp_path, "over"))
    with pytest.raises(ConnectionError, match="has ended"):
        found_in(tmp_path)


def test_keys_that_others_can_read_are_not_used(tmp_path: Path):
    run = make_run(tmp_path, "open")
    (run / contact.FILE_NAME).chmod(0o644)
    with pytest.raises(ConnectionError, match="can be read by others"):
        found_in(tmp_path)


def test_runs_that_cannot_be_read_are_skipped(tmp_path: Path):
    wanted = make_run(tmp_path, "good", age=30)
    (make_run(tmp_path, "open", age=20) / contact.FILE_NAME).chmod(0o644)
    (make_run(tmp_path, "garbage", age=10) / contact.FILE_NAME).write_text("{")
    assert found_in(tmp_path) == wanted
    assert find_target("127.0.0.1:1", {"QCG_PJM_DIR": str(tmp_path)}).run_dir == wanted


def test_a_program_finds_its_manager_by_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here, mine, job = (tmp_path / name for name in ("here", "mine", "job"))
    for directory in (here, mine, job):
        directory.mkdir()
    live, other, its_own = (make_run(directory, "r") for directory in (here, mine, job))
    make_run(here, "dead", alive=False)
    monkeypatch.chdir(here)
    assert find_target(None, {}).run_dir == live
    environ = {"QCG_PM_CONTACT": str(its_own / contact.FILE_NAME), "QCG_PM_ZMQ_ADDRESS": "tcp://127.0.0.1:9"}
    assert find_target(None, environ).run_dir == its_own
    assert find_target(None, {**environ, "QCG_PJM_DIR": str(mine)}).run_dir == other
    assert find_target(None, {**environ, "QCG_PJM_ADDRESS": "host:7"}).contact.address == "tcp://host:7"


def test_the_error_of_a_program_without_a_manager_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConnectionError) as caught:
        Manager()
    told = str(caught.value)
    assert [
        w for w in (f"no run (.qcgpjm-service-*) in {tmp_path}", "LocalManager", "qcg-pm-client") if w not in told
    ] == []
    assert "5555" not in told


COMMANDS = ["status", "jobs", "info x", "why x", "wait", "logs x", "cancel x", "remove x", "resources", "finish"]


@pytest.mark.parametrize("line", [*COMMANDS, "submit -- true"])
def test_every_command_ends_with_2_when_there_is_no_manager(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 2
    assert f"there is no run (.qcgpjm-service-*) in {tmp_path}" in done.output


def test_the_environment_of_the_user_precedes_that_of_a_job_and_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here, mine, job = (tmp_path / name for name in ("here", "mine", "job"))
    for directory in (here, mine, job):
        directory.mkdir()
    monkeypatch.chdir(here)

    def sought() -> str:
        return str(CliRunner().invoke(main, ["status"]).output)

    assert f"in {here}." in sought()
    monkeypatch.setenv("QCG_PM_CONTACT", str(job / "contact.json"))
    assert f"in {job}." in sought()
    monkeypatch.setenv("QCG_PJM_DIR", str(mine))
    assert f"in {mine}." in sought()


def test_path_and_address_exclude_each_other():
    done = CliRunner().invoke(main, ["status", "-p", ".", "-a", "localhost"])
    assert done.exit_code == 2
    assert "not both" in done.output


def test_path_and_address_may_precede_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    make_run(there, "silent", net=False)
    for arguments in (
        ["-p", "there", "status"],
        ["--path", "there", "status"],
        ["-p", "nowhere", "status", "-p", "there"],
    ):
        said = CliRunner().invoke(main, arguments)
        assert said.exit_code == 2
        assert f"the manager in {there}/.qcgpjm-service-silent has no network interface" in said.output, arguments


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", ".", "-a", "x:1", "status"], "give --path or --address, not both"),
        (["-p", ".", "run", "r.json"], "`qcg-pm run` asks about none; its working directory is given with --wd"),
        (["-p", ".", "r.json"], "`qcg-pm run` asks about none"),
        (["-a", "x:1", "report"], "--address says where a run is, and `qcg-pm report` asks about none"),
        (["-a", "x:1", "validate", "r.json"], "`qcg-pm validate` asks about none"),
    ],
)
def test_path_and_address_are_refused_by_commands_that_do_not_use_them(arguments: list[str], sentence: str):
    said = CliRunner().invoke(main, arguments, prog_name="qcg-pm")
    assert said.exit_code == 2
    assert sentence in said.output


@pytest.mark.parametrize(
    ("before", "behind", "variable"),
    [("-p", "", ""), ("", "-p", ""), ("", " ", ""), ("", "", "QCG_PJM_DIR")],
    ids=["before the command", "as its option", "as its argument", "by the environment"],
)
@pytest.mark.parametrize(
    ("command", "sentence"), [("report", "There is no run in {}"), ("runs", "There are no runs in {}")]
)
def test_commands_without_a_manager_use_the_given_directory(
    command: str, sentence: str, before: str, behind: str, variable: str, tmp_path: Path
):
    there = str(tmp_path)
    arguments = [*([before, there] if before else []), command, *([behind, there] if behind.strip() else [])]
    arguments += [there] if behind == " " else []
    said = CliRunner().invoke(main, arguments, env={variable: there} if variable else {})
    assert sentence.format(tmp_path) in said.output


def test_a_directory_and_a_path_together_are_refused(tmp_path: Path):
    said = CliRunner().invoke(main, ["runs", str(tmp_path), "-p", str(tmp_path)])
    assert "give DIRECTORY or --path, not both" in said.output
