"""Commands of users about jobs on remote hosts: logs, why, cat-log, validate."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.ssh_host import kill_command
from tests.support.ssh_lab import Lab
from tests.support.waiting import wait_for


def remote(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "execution": {"script": script}, "remote": {"host": "wizard"}, **more}


def prepare(lab: Lab, *jobs: dict[str, Any]) -> None:
    lab.citadel.write("demo/hosts.toml", "[wizard]\ncores = 4\n")
    lab.citadel.write("demo/requests.json", json.dumps([{"request": "submit", "jobs": list(jobs)}]))


def pm(lab: Lab, *arguments: str, code: int = 0) -> str:
    """The output of a command on citadel."""
    done = lab.citadel.run("qcg-pm", *arguments, cwd="demo", check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_logs_of_remote_jobs_come_from_their_host(lab: Lab):
    named = remote("named", "echo hello")
    named["execution"]["stdout"] = "hello.txt"
    prepare(lab, remote("good", "echo one; echo two; echo three"), remote("sweep", "echo it ${it}", iteration=2), named)
    pm(lab, "run", "requests.json", "--hosts", "hosts.toml")
    assert pm(lab, "logs", "good").startswith("one\ntwo\nthree\n")
    assert pm(lab, "logs", "-n", "1", "good").startswith("three\n")
    assert "it 0\n" in pm(lab, "logs", "sweep:*")
    assert pm(lab, "logs", "named").startswith("hello\n")
    assert pm(lab, "cat-log", "-m", "list", "good").startswith("job\njob.err\njob.out\njob.status\n")
    assert "EXIT_CODE=0\n" in pm(lab, "cat-log", "-f", "s", "good")
    assert "There is no file nothing in " in pm(lab, "cat-log", "-f", "nothing", "good", code=1)


def test_the_last_lines_of_a_failed_remote_job_are_there_without_the_host(lab: Lab):
    prepare(lab, remote("bad", "echo it was the budget >&2; exit 3"))
    assert "it was the budget" in pm(lab, "run", "requests.json", "--hosts", "hosts.toml", code=1)
    lab.wizard.refuse()
    assert "it was the budget" in pm(lab, "why", "bad")
    assert pm(lab, "logs", "--stderr", "bad").startswith("it was the budget\n")
    assert "wizard refuses connections" in pm(lab, "cat-log", "bad", code=1)


def test_a_log_is_followed_until_the_end_of_its_job(lab: Lab):
    prepare(lab, remote("long", "echo began; until [ -e ~/release ]; do sleep 0.05; done; echo ended"))
    run = lab.citadel.start("qcg-pm", "run", "requests.json", "--hosts", "hosts.toml", cwd="demo")
    wait_for(lambda: any(path.stat().st_size for path in outputs(lab)), 60, "output of the job")
    with lab.citadel.start("qcg-pm", "cat-log", "-m", "tail", "long", cwd="demo", stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "began\n"
        lab.wizard.write("release", "")
        assert follower.stdout.read() == "ended\n"
        assert follower.wait(30) == 0
    assert run.wait(30) == 0


def test_a_follower_that_is_killed_leaves_nothing_on_the_host(lab: Lab):
    prepare(lab, remote("long", "echo began; until [ -e ~/release ]; do sleep 0.05; done"))
    run = lab.citadel.start("qcg-pm", "run", "requests.json", "--hosts", "hosts.toml", cwd="demo")
    wait_for(lambda: any(path.stat().st_size for path in outputs(lab)), 60, "output of the job")
    with lab.citadel.start("qcg-pm", "cat-log", "-m", "tail", "long", cwd="demo", stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "began\n"
        assert followers(lab)
        kill_command(follower)
    wait_for(lambda: not followers(lab), 10, lambda: f"the end of {followers(lab)}")
    lab.wizard.write("release", "")
    assert run.wait(30) == 0


def followers(lab: Lab) -> list[str]:
    return [str(one) for one in lab.wizard.processes() if " cat-log " in str(one)]


def test_clean_removes_the_directories_of_a_run_on_its_hosts(lab: Lab):
    prepare(lab, remote("good", "echo one > result"))
    pm(lab, "run", "requests.json", "--hosts", "hosts.toml", "--id", "x")
    lab.wizard.write("qcg-run/y/.service/instance", "another run\n")
    assert "/home/hobo/qcg-run/x on wizard stays; see --remote" in pm(lab, "clean", "--dry-run")
    lab.wizard.refuse()
    said = pm(lab, "clean", "--remote", code=1)
    assert "was not removed: its directory on wizard could not be removed: wizard refuses connections" in said
    lab.wizard.heal()
    said = pm(lab, "clean", "--remote")
    assert said.startswith("Removed /home/hobo/qcg-run/x on wizard\nRemoved .qcgpjm-service-x ")
    assert [path.name for path in (lab.wizard.home / "qcg-run").iterdir()] == ["y"]
    assert not list((lab.citadel.home / "demo").glob(".qcgpjm-service-*"))


def outputs(lab: Lab) -> list[Path]:
    return list(lab.wizard.home.glob("qcg-run/*/log/job/1/long/01/job.out"))


@pytest.mark.parametrize(("host", "code"), [("wizard", 0), ("wizrad", 1)])
def test_validate_knows_the_hosts_of_a_file(lab: Lab, host: str, code: int):
    prepare(lab, {**remote("a", "true"), "remote": {"host": host}})
    said = pm(lab, "validate", "requests.json", "--hosts", "hosts.toml", code=code)
    assert ('did you mean "wizard"?' in said) is (code == 1)
