"""`--notify`: real runs, and the notifications that their commands get."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.common.environment import HAS_NEXT_ALLOCATION
from tests.support.disks import fill
from tests.support.pilot import environment, job, run, start, write_requests
from tests.support.serving import served
from tests.support.waiting import wait_for

GATE = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture
def hook(tmp_path: Path) -> str:
    """A command that appends each notification to the file `notifications`."""
    script = tmp_path / "hook.sh"
    script.write_text("#!/bin/sh\nexec cat >> notifications\n")
    script.chmod(0o755)
    return str(script)


def notifications(wd: Path) -> list[dict[str, Any]]:
    path = wd / "notifications"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(wd: Path) -> list[str]:
    return [one["event"] for one in notifications(wd)]


def test_the_first_failure_and_the_end_are_notified(tmp_path: Path, hook: str):
    requests = write_requests(tmp_path / "r.json", [job("a", "false"), job("b", "true", after="a"), job("c", "true")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--id", "x", "--notify", hook)
    assert done.returncode == 1
    failure, end = notifications(tmp_path)
    assert (failure["event"], failure["job"], failure["message"]) == ("first-failure", "a", "exit code 1")
    assert end == {
        "event": "end",
        "sentence": "the run has ended: 1 SUCCEED, 1 FAILED, 1 OMITTED",
        "at": end["at"],
        "run": "x",
        "directory": str(tmp_path / ".qcgpjm-service-x"),
        "host": end["host"],
        "jobs": {"SUCCEED": 1, "FAILED": 1, "OMITTED": 1},
        "iterations": {},
        "cause": "done",
        "reason": "every job had ended",
        "exit_code": 1,
        "jobs_left": 0,
    }


def test_a_resumed_run_repeats_no_failure_and_notifies_its_own_end(tmp_path: Path, hook: str):
    first = [job("a", "false"), job("b", "false"), job("late", script=f"{GATE}; false")]
    requests = write_requests(tmp_path / "r.json", first)
    events_wanted = "end,first-failure,failures=2,failures=3"
    options = ("--wd", tmp_path, "--cores", "3", "--notify", hook, "--notify-on", events_wanted)
    process = start("qcg-pm", "run", requests, *options)
    wait_for(lambda: events(tmp_path) == ["first-failure", "failures"], what="two notifications")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    end = notifications(tmp_path)[-1]
    assert (end["event"], end["cause"], end["exit_code"], end["jobs_left"]) == ("end", "signal", 130, 1)
    assert end["sentence"].startswith("the manager has ended: 1 QUEUED, 2 FAILED. 1 job is left, ")
    assert "Continue with: qcg-pm run --resume" in end["sentence"]
    (tmp_path / "go").touch()
    assert run("qcg-pm", "run", "--resume", tmp_path).returncode == 1
    assert events(tmp_path)[3:] == ["failures", "end"]
    assert notifications(tmp_path)[3]["failures"] == 3


def test_a_failure_found_by_the_next_manager_is_its_first(tmp_path: Path, hook: str):
    """The manager is killed, and the job fails while no manager runs."""
    requests = write_requests(tmp_path / "r.json", [job("a", script=f"echo > began; {GATE}; touch over; false")])
    process = start("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", "--notify", hook)
    wait_for((tmp_path / "began").exists, what="the job")
    process.kill()
    process.communicate()
    (tmp_path / "go").touch()
    wait_for((tmp_path / "over").exists, what="the end of the job")
    assert run("qcg-pm", "run", "--resume", tmp_path).returncode == 1
    assert events(tmp_path) == ["first-failure", "end"]


def test_a_period_without_starts_and_ends_is_a_stall(tmp_path: Path, hook: str):
    with served(tmp_path, "--cores", "1", "--notify", hook, "--notify-on", "stall=0.4s") as service:
        service.submit(job("runs", script=GATE), job("waits", "true"))
        wait_for(lambda: events(tmp_path), what="the notification")
        (stall,) = notifications(tmp_path)
        assert (stall["event"], stall["reason"], stall["running"]) == ("stall", "quiet", 1)
        (tmp_path / "go").touch()
        service.wait("waits", "SUCCEED")
    assert events(tmp_path) == ["stall"]


def test_a_registry_that_cannot_be_written_is_a_stall(tmp_path: Path, mount: Callable[..., Path]):
    disk = mount("disk", "size=8m")
    script = f"cd {tmp_path}; touch began; {GATE}"
    requests = write_requests(tmp_path / "r.json", [job("a", script=script), job("b", "true", after="a")])
    command = f"sh -c 'cat >> {tmp_path}/notifications'"
    options = ("--cores", "1", "--notify", command, "--notify-on", "stall=0.5s,end")
    process = start("qcg-pm", "run", requests, "--wd", disk, *options)
    wait_for((tmp_path / "began").exists, what="the job")
    fill(disk / "hog")
    (tmp_path / "go").touch()
    wait_for(
        lambda: [one.get("reason") for one in notifications(tmp_path)][-1:] == ["registry"], what="the notification"
    )
    (disk / "hog").unlink()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert events(tmp_path)[-1] == "end"


def test_commands_that_hang_or_fail_do_not_harm_the_run(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "false"), job("b", "true")])
    options = ("--notify", "sh -c 'echo cannot reach anybody; exit 7'", "--notify", "cat /no/such/file")
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1", *options)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    log = (tmp_path / "service.log").read_text()
    assert log.count("the command of --notify, sh, ended with exit code 7:\n    cannot reach anybody") == 2
    assert log.count("the command of --notify, cat, ended with exit code 1") == 2


def test_the_end_of_an_allocation_that_another_one_continues_is_not_notified(tmp_path: Path, hook: str):
    requests = write_requests(tmp_path / "r.json", [job("a", script=GATE)])
    options = ("--wd", tmp_path, "--cores", "1", "--notify", hook, "--time-limit", "1s", "--grace", "0")
    done = run("qcg-pm", "run", requests, *options, env=environment(**{HAS_NEXT_ALLOCATION: "8"}))
    assert done.returncode == 4
    assert events(tmp_path) == []
    assert run("qcg-pm", "run", "--resume", tmp_path, "--time-limit", "1s").returncode == 4
    assert [(one["event"], one["cause"]) for one in notifications(tmp_path)] == [("end", "time")]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--notify", "no-such-program"),
            "there is no program 'no-such-program' that can be run; commands are run with",
        ),
        (("--notify", "  "), "there is no program ''"),
        (("--notify-on", "end"), "--notify-on says when to run commands: give them with --notify COMMAND"),
        (("--notify", __file__), "is not executable (chmod +x would make it so)"),
        (("--notify", "sh -c 'x"), "is no command: no closing quotation"),
        (("--notify", "true", "--notify-on", "always"), "'always' is none of end, first-failure, failures=N and stall"),
    ],
)
def test_a_wrong_option_is_refused_with_one_sentence(tmp_path: Path, options: tuple[str, ...], sentence: str):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not list(tmp_path.glob(".qcgpjm*"))


def test_a_program_given_by_its_path_is_found_from_every_directory(tmp_path: Path, hook: str):
    (tmp_path / "wd").mkdir()
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", requests, "--wd", "wd", "--cores", "1", "--notify", "./hook.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert events(tmp_path / "wd") == ["end"]
