"""How commands find the manager, and what they say when they cannot."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from qcg.pilotjob.cli.finding import live_run
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cli.refusing import Refusal
from qcg.pilotjob.host.tree import look_at
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import AgentsContact, ClientsContact, Contact

AGENTS = AgentsContact("tcp://127.0.0.1:1", "k", "k", "k")
CLIENTS = ClientsContact("tcp://127.0.0.1:1")


def make_run(directory: Path, name: str, *, alive: bool = True, net: bool = True, age: float = 0.0) -> Path:
    """A run whose manager is this process, or was."""
    run = directory / f".qcgpjm-service-{name}"
    run.mkdir(mode=0o700)
    process = look_at(os.getpid())
    assert process is not None
    began = process.began if alive else process.began - 1
    contact.write(run, Contact(AGENTS, os.getpid(), began, socket.gethostname(), CLIENTS if net else None))
    os.utime(run, (1e9 - age, 1e9 - age))
    return run


def test_the_newest_live_run_of_a_working_directory_is_taken(tmp_path: Path):
    make_run(tmp_path, "old", age=30)
    wanted = make_run(tmp_path, "live", age=20)
    make_run(tmp_path, "silent", net=False, age=10)
    make_run(tmp_path, "dead", alive=False)
    assert live_run(tmp_path) == wanted


def test_a_run_directory_means_itself(tmp_path: Path):
    wanted = make_run(tmp_path, "one", age=10)
    make_run(tmp_path, "other")
    assert live_run(wanted) == wanted


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ["there is no run", "--path DIR", "QCG_PJM_DIR"]),
        ([{"alive": False}], ["has died", "--resume", "qcg-pm report"]),
        ([{"net": False}], ["has no network interface", "--no-net"]),
    ],
)
def test_without_a_manager_to_talk_to_the_sentence_says_what_to_do(
    runs: list[dict[str, bool]], words: list[str], tmp_path: Path
):
    for number, run in enumerate(runs):
        make_run(tmp_path, str(number), **run)
    with pytest.raises(Refusal) as caught:
        live_run(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert [word for word in words if word not in caught.value.message] == []


def test_a_run_whose_manager_has_ended_says_so(tmp_path: Path):
    contact.remove(make_run(tmp_path, "over"))
    with pytest.raises(Refusal, match="has ended"):
        live_run(tmp_path)


def test_keys_that_others_can_read_are_not_used(tmp_path: Path):
    run = make_run(tmp_path, "open")
    (run / contact.FILE_NAME).chmod(0o644)
    with pytest.raises(Refusal, match="can be read by others"):
        live_run(tmp_path)


COMMANDS = ["status", "jobs", "info x", "why x", "wait", "logs x", "cancel x", "remove x", "resources", "finish"]


@pytest.mark.parametrize("line", [*COMMANDS, "submit -- true"])
def test_every_command_ends_with_2_when_there_is_no_manager(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 2
    assert f"there is no run (.qcgpjm-service-*) in {tmp_path}" in done.output


def test_what_the_user_has_set_goes_before_the_manager_of_a_job_and_both_before_the_working_directory(
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
