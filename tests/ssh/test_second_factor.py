"""Hosts where a person has to log in: every command uses the connection of the person, and none logs in by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.remote_run import RemoteRun, remote_job, waiting_job
from tests.support.ssh_lab import Lab

pytestmark = pytest.mark.any_worker

OWN = "-oControlPath=/tmp/qcg-pm-ssh-2001/own-%C"
"""The connection that `qcg-pm hosts connect` opens."""


@pytest.fixture
def own_connection(lab: Lab) -> Iterator[None]:
    """The connections of the test are closed at its end."""
    yield
    lab.citadel.run("ssh", OWN, "-O", "exit", "wizard", check=False)


@pytest.fixture
def user_configuration(lab: Lab) -> Iterator[str]:
    """The ssh configuration of the user, which the test may change."""
    text = lab.citadel.read(".ssh/config")
    yield text
    lab.citadel.run("ssh", "-O", "exit", "wizard", check=False)
    lab.citadel.write(".ssh/config", text)


def connect(lab: Lab) -> str:
    return lab.citadel.run("qcg-pm", "hosts", "connect", "wizard", "--hosts", "hosts.toml", cwd="project").stdout


def logins(lab: Lab) -> list[int]:
    return [host.logins() for host in (lab.wizard, lab.tower)]


@pytest.mark.usefixtures("own_connection")
def test_nothing_logs_in_after_the_connection_of_a_person_was_lost(lab: Lab, channel: str, user_configuration: str):
    """Neither to the host nor to the one on the way to it."""
    lab.citadel.write(".ssh/config", "Host wizard\n  ProxyJump tower\n" + user_configuration)
    jobs = [waiting_job("one", "echo said > out", outputs=["out"])]
    run = RemoteRun(lab, jobs, channel=channel, second_factor="own", retrieve="always")
    assert "is open now" in connect(lab)
    run.start()
    run.wait_for_log("one EXECUTING")
    assert logins(lab) == [1, 1]
    lab.citadel.run("ssh", OWN, "-O", "exit", "wizard")
    run.wait_for_log("wizard is unreachable .*needs a person to log in, and no connection is open")
    for mode in ("cat", "list", "tail"):
        assert "needs a person to log in" in run.refused("-p", run.run_dir.name, "cat-log", "-m", mode, "one")
    run.release()
    assert logins(lab) == [1, 1]
    connect(lab)
    run.finish()
    assert (run.wd / "work" / "1" / "one" / "out").read_text() == "said\n"
    assert logins(lab) == [2, 2]
    run.check_starts(["one"])


def test_a_connection_of_the_user_serves_everything(lab: Lab, channel: str, user_configuration: str):
    lab.citadel.write(".ssh/config", "Host wizard\n  ControlPath ~/.ssh/cm-%C\n" + user_configuration)
    lab.citadel.write("project/data/one", "x")
    job = waiting_job("one", "cat ~/qcg-run/x/data/one > out", outputs=["out"])
    run = RemoteRun(lab, [job], channel=channel, second_factor="reuse", install=["data"], retrieve="always").start()
    run.wait_for_log("wizard is unreachable")
    assert "ssh -fNM wizard" in run.why("one")
    assert lab.wizard.logins() == 0
    lab.citadel.run("ssh", "-fNM", "wizard")
    assert "is open already" in connect(lab)
    run.wait_for_marks(1)
    run.release()
    run.finish()
    assert (run.wd / "work" / "1" / "one" / "out").read_text() == "x"
    assert lab.wizard.logins() == 1
    run.check_starts(["one"])


@pytest.mark.usefixtures("own_connection")
def test_a_manager_at_a_terminal_asks_once(lab: Lab, channel: str):
    keys = {"channel": channel, "second_factor": "ask", "poll_interval": 1}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    lab.citadel.write("project/hosts.toml", "\n".join(["[wizard]", *lines, ""]))
    lab.citadel.write("project/jobs.json", json.dumps([{"request": "submit", "jobs": [remote_job("one")]}]))
    run = "qcg-pm run jobs.json --hosts hosts.toml --cores 1 --id x"
    done = lab.citadel.run("script", "-qec", run, "/dev/null", cwd="project")
    assert "SUCCEED" in done.stdout
    assert lab.wizard.read("marks").split() == ["one"]
    assert lab.wizard.logins() == 1


@pytest.mark.usefixtures("own_connection")
def test_files_are_copied_with_one_session_for_each_connection_in_one_shot_mode(lab: Lab):
    lab.wizard.configure_sshd(MaxSessions=1)
    job = remote_job("one", "echo said > out", outputs=["out"])
    run = RemoteRun(lab, [job], second_factor="own")
    connect(lab)
    check = ("qcg-pm", "hosts", "check", "wizard", "--hosts", "hosts.toml")
    over_channel = lab.citadel.run(*check, cwd="project", check=False)
    assert over_channel.returncode == 1
    assert 'files can be copied with channel = "one-shot" only' in over_channel.stdout
    run.configure({"wizard": {"channel": "one-shot", "second_factor": "own"}})
    assert "wizard can be used." in lab.citadel.run(*check, cwd="project").stdout
    run.start().finish()
    assert (run.wd / "work" / "1" / "one" / "out").read_text() == "said\n"
    assert lab.wizard.logins() == 1
