"""Commands that cannot start end with one message and exit code 2: no traceback, no hang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from qcg.pilotjob.cli.commands.service import command
from qcg.pilotjob.cli.main import main
from tests.support.pilot import WAIT, job, run, run_requests, start, write_requests
from tests.support.waiting import wait_for

MANY = 200_000_000
"""The size in bytes of a request file that a user made by mistake."""


COMMANDS = {"qcg-pm": main, "qcg-pm-service": command}


def refused(name: str, *arguments: str | Path) -> str:
    """The output of a command that runs in this process; it must not have created a run."""
    done = CliRunner().invoke(COMMANDS[name], [str(argument) for argument in arguments])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2, done.output
    assert "Error" in done.stderr
    assert "Traceback" not in done.output
    return " ".join(done.stderr.split())


def test_a_file_that_is_no_request_file_is_refused(tmp_path: Path):
    cases: list[tuple[bytes, str]] = [
        (b"", "JSON"),
        (b'[{"request": "submit", "jobs": [{"na', "JSON"),
        (b"[1, 2", "JSON"),
        (b"hello", "JSON"),
        (b"\xff\xfe\x00\x00", "JSON"),
        (b"\x00" * 100, "JSON"),
        (b'{"request": "submit"', "JSON"),
        (b'"submit"', "array of requests"),
        (b"17", "array of requests"),
        (b"null", "array of requests"),
        (b"[" * 100_000, "too many levels deep"),
        (b"[] []", "JSON"),
    ]
    file = tmp_path / "requests.json"
    for content, said in cases:
        file.write_bytes(content)
        sentence = refused("qcg-pm", "run", file, "--wd", tmp_path / "wd")
        assert said in sentence, (content[:20], sentence)
        assert str(file) in sentence
    assert not (tmp_path / "wd").exists(), "nothing is made for a file that is refused"
    assert "No such file" in refused("qcg-pm-service", "--file-path", tmp_path / "missing.json", "--wd", tmp_path)
    assert "it is a directory" in refused("qcg-pm", "run", tmp_path)
    assert "Not a directory" in refused("qcg-pm", "run", file / "below")


def test_invalid_requests_in_the_array_are_refused_one_by_one(tmp_path: Path):
    done = run_requests(tmp_path, "a string", *[[]], {"request": "submit", "jobs": "x"}, [job("good", "true")])
    (tmp_path / "numbers.json").write_text("[1, null, true, [], {}]")
    assert [reply["code"] for reply in done.replies] == [1, 1, 1, 0]
    assert done.states == {"good": "SUCCEED"}
    numbers = run("qcg-pm", "run", tmp_path / "numbers.json", "--wd", tmp_path, "--nodes", "1")
    assert numbers.returncode == 1
    assert numbers.stderr.count("a request must be an object") == 4
    assert "Traceback" not in numbers.stdout + numbers.stderr


def test_an_empty_array_is_a_run_without_jobs(tmp_path: Path):
    done = run_requests(tmp_path)
    assert (done.done.returncode, done.done.stderr, done.states) == (0, "", {})


def test_two_hundred_megabytes_of_garbage_are_refused_quickly(tmp_path: Path):
    file = tmp_path / "garbage.json"
    with file.open("wb") as stream:
        stream.write(b"garbage ")
        stream.truncate(MANY)
    assert "JSON" in refused("qcg-pm", "run", file)
    file.write_bytes(b'[{"request": "submit", "jobs": [' + b'{"name": "a"}, ' * (MANY // 15))
    assert "JSON" in refused("qcg-pm", "run", file)


@pytest.mark.timeout(300)
def test_one_description_of_two_hundred_megabytes_fails_alone(tmp_path: Path):
    file = tmp_path / "huge.json"
    big = json.dumps({"name": "big", "execution": {"script": "true " + "x" * MANY}})
    good = json.dumps(job("good", "true"))
    file.write_text(f'[{{"request": "submit", "jobs": [{good}, {big}]}}]')
    # The description is read, parsed and stored: a busy machine may need more than a minute for that.
    done = run("qcg-pm", "run", file, "--wd", tmp_path, "--nodes", "2", "--report-format", "none", timeout=240)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "big FAILED" in done.stdout
    assert "SUCCEED     1" in done.stdout


def test_options_that_make_no_sense_are_refused(tmp_path: Path):
    good = write_requests(tmp_path / "r.json", [job("a", "true")])
    file = tmp_path / "file"
    file.write_text("")
    run_it = ("qcg-pm", "run", good)
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("--nodes", "x"), "'x' is not a node"),
        (("--nodes", "0"), "cannot have 0 cores"),
        (("--nodes", "n1:2,n1:2"), "two nodes are called 'n1'"),
        (("--nodes", ""), "is not a node"),
        (("--wd", file), "choose another --wd"),
        (("--wd", file / "below"), "choose another --wd"),
        (("--wd", "/proc/nothing"), "choose another --wd"),
        (("--wd", tmp_path, "--id", "a/b"), "leave out the '/'"),
        (("--wd", tmp_path, "--id", ".."), "--id"),
        (("--wd", tmp_path, "--id", "x" * 300), "name too long"),
        (("--resources", "no-such-system"), "'auto', 'local', 'slurm'"),
        (("--resources", "slurm"), "there is no allocation here"),
        (("--envschema", "no-such-system"), "use auto, common or slurm"),
        (("--report-format", "xml"), "'text', 'json', 'none'"),
        (("--log", "loud"), "'critical'"),
        (("--agent-linger", "-1"), "--agent-linger"),
        (("--resume", tmp_path / "nowhere"), "is not there"),
        (("--resume", file), "is a file"),
        (("--no-such-option",), "--no-such-option"),
    ]
    for arguments, said in cases:
        assert said in refused(*run_it, *arguments), arguments


def test_a_report_that_cannot_be_written_is_refused(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--report-file", requests / "below")
    assert done.returncode == 2
    assert "--report-file" in done.stderr
    assert list(tmp_path.iterdir()) == [requests], "nothing is left of a run that could not begin"
    assert "Traceback" not in done.stdout + done.stderr


def test_the_service_without_requests_or_network_is_refused(run_dir: Path):
    assert "--file-path" in refused("qcg-pm-service", "--wd", run_dir)
    assert "qcg_pm_reqs.json" in refused("qcg-pm-service", "--file")
    assert "FILE" in refused("qcg-pm", "run")
    assert "no-such-command" in refused("qcg-pm", "no-such-command")


def test_a_live_run_cannot_be_resumed_and_its_id_cannot_be_used_again(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "sleep", "1000")], WAIT)
    manager = start("qcg-pm-service", "--file-path", requests, "--wd", tmp_path, "--nodes", "1", "--id", "mine")
    try:
        log = tmp_path / "service.log"
        wait_for(lambda: log.exists() and "connected" in log.read_text(), what="the service to run")
        for place in (tmp_path, tmp_path / ".qcgpjm-service-mine"):
            said = refused("qcg-pm", "run", "--resume", place)
            assert f"a manager (pid {manager.pid} on " in said
        again = refused("qcg-pm", "run", requests, "--wd", tmp_path, "--id", "mine")
        assert "already a run with the id 'mine'" in again
        assert "--resume" in again
    finally:
        manager.send_signal(signal.SIGTERM)
        manager.communicate(timeout=60)
    assert manager.returncode == 143


@pytest.mark.parametrize("content", [b"", b"not a registry"])
def test_a_file_that_is_no_registry_is_refused(tmp_path: Path, content: bytes):
    run_dir = tmp_path / ".qcgpjm-service-x"
    run_dir.mkdir()
    (run_dir / "registry.sqlite").write_bytes(content)
    for arguments in (("run", "--resume", run_dir), ("report", run_dir)):
        assert "registry.sqlite" in refused("qcg-pm", *arguments)


def test_a_reader_that_stops_after_the_first_lines_disturbs_no_job(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("bad", "false", iteration=50)], [job("good", "true")], WAIT)
    for name, arguments in (("qcg-pm", ["run"]), ("qcg-pm-service", ["--show-progress", "--file-path"])):
        wd = tmp_path / name
        manager = start(name, *arguments, requests, "--wd", wd, "--nodes", "2", "--report-format", "json")
        assert manager.stdout is not None
        manager.stdout.close()
        manager.stdout = None
        _, err = manager.communicate(timeout=60)
        assert manager.returncode == 1, err
        assert "Traceback" not in err
        assert len((wd / "jobs.report").read_text().splitlines()) == 52, "every job ran and is reported"


def test_no_command_needs_a_terminal_or_standard_input(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "cat", stdout="a.out")], WAIT)
    line = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    command_line = [sys.executable, "-m", "qcg.pilotjob.service", "--file-path", requests, "--wd", tmp_path]
    closed = subprocess.run([*line, *map(str, command_line)], timeout=60, check=False)
    assert closed.returncode == 0
    assert (tmp_path / "a.out").read_text() == ""


def test_a_file_all_of_whose_requests_are_refused_leaves_no_run_directory(tmp_path: Path):
    refused_file = write_requests(tmp_path / "bad.json", [job("a", "true", after=["nobody"])])
    done = run("qcg-pm", "run", refused_file, "--wd", tmp_path, "--cores", "1")
    assert done.returncode == 1
    assert "1 request was refused, and nothing was run" in done.stderr
    assert "'nobody'" in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_links_point_to_the_previous_run_when_a_file_is_refused(tmp_path: Path):
    good = write_requests(tmp_path / "good.json", [job("a", "true")])
    assert run("qcg-pm", "run", good, "--wd", tmp_path, "--cores", "1", "--id", "good").returncode == 0
    bad = write_requests(tmp_path / "bad.json", {"request": "submit", "jobs": [{}]})
    assert run("qcg-pm", "run", bad, "--wd", tmp_path, "--cores", "1").returncode == 1
    assert len(list(tmp_path.glob(".qcgpjm-service-*"))) == 1
    for name in ("service.log", "jobs.report"):
        assert (tmp_path / name).readlink() == Path(".qcgpjm-service-good", name)


def test_a_run_with_one_accepted_request_keeps_its_directory(tmp_path: Path):
    done = run_requests(tmp_path, [job("a", "true")], {"request": "submit", "jobs": [{}]})
    assert done.done.returncode == 1
    assert "There are no jobs." not in done.done.stdout
    assert done.states == {"a": "SUCCEED"}
