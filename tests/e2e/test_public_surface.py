"""Commands and public calls only, for behaviour that the tests of packages state in detail: reports after a crash,
limits of descriptions, misspelt variables, copies of registries, futures and logs of programs."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.executor_api.qcgpj_executor import QCGPJExecutor
from tests.support.pilot import environment, job, run, start, write_requests
from tests.support.waiting import wait_for

WAITS = "until [ -e go ]; do sleep 0.02; done"


# -- reports ----------------------------------------------------------------------------------------------------------


def entries(wd: Path) -> list[tuple[str, str]]:
    """Names and states in the report; every line has to be a whole entry."""
    found = [json.loads(line) for line in (wd / "jobs.report").read_text().splitlines()]
    return sorted((entry["name"], entry["state"]) for entry in found)


def crashed_run(wd: Path) -> Path:
    """The report of a run whose manager was killed: `a` and `it` have ended, `b` runs, `c` waits for it."""
    waiting = job("b", script=f"touch up; {WAITS}", after=["it"])
    path = write_requests(
        wd / "r.json", [job("a", "false"), job("it", "true", iteration=3), waiting, job("c", "true", after=["b"])]
    )
    report = wd / ".qcgpjm-service-x/jobs.report"
    with start("qcg-pm", "run", path, "--wd", wd, "--nodes", "1", "--id", "x", "--report-format", "json") as manager:
        wait_for((wd / "up").exists, what="the job that waits")
        wait_for(lambda: report.exists() and report.read_bytes().count(b"\n") == 5, what="the report of the others")
        manager.kill()
        manager.communicate(timeout=60)
    return report


@pytest.mark.parametrize("left", ["nothing", "half a line", "all but the last byte", "zeros"])
def test_a_resumed_run_restores_lost_entries_of_its_report(tmp_path: Path, left: str):
    """As after a crash of the machine: the registry was synced, the report was not."""
    report = crashed_run(tmp_path)
    content = report.read_bytes()
    if left == "nothing":
        report.unlink()
    else:
        size = {"half a line": content.index(b"\n") // 2, "all but the last byte": len(content) - 1, "zeros": 10}[left]
        report.write_bytes(content[:size] + (b"\0" * 500 if left == "zeros" else b""))
    (tmp_path / "go").touch()
    assert run("qcg-pm", "run", "--resume", tmp_path).returncode == 1
    ends = [
        ("a", "FAILED"),
        ("b", "SUCCEED"),
        ("c", "SUCCEED"),
        *((name, "SUCCEED") for name in ("it", "it:0", "it:1", "it:2")),
    ]
    assert entries(tmp_path) == sorted(ends)


# -- limits -----------------------------------------------------------------------------------------------------------


def validate(tmp_path: Path, described: dict[str, Any]) -> tuple[subprocess.CompletedProcess[str], float]:
    """The finished command, and the seconds of processor time that it used."""
    path = write_requests(tmp_path / "r.json", [described])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("qcg-pm", "validate", path, "--nodes", "1")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


LOOPS = {
    "many for": "for " * 60_000 + "\n${it}",
    "many loops": "".join(f"for v{number} in a; do echo ${{v{number}}}; done\n" for number in range(10_000)),
}


@pytest.mark.parametrize("script", LOOPS.values(), ids=LOOPS)
def test_validating_a_long_script_takes_linear_time(tmp_path: Path, script: str):
    done, seconds = validate(tmp_path, job("a", script=script))
    assert done.returncode == 0, done.stderr
    assert seconds < 5, "a quadratic search takes minutes"


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        (job("j" * 200, script="${jname}" * 14_500), "more than 1048576 characters"),
        (job("j" * 201, "true"), "has 201 bytes; at most 200 are allowed"),
        (job("x" * 1_000_000, "true"), "has 1000000 characters; at most 2000 are allowed"),
    ],
    ids=["variables", "a long name", "a name of a megabyte"],
)
def test_descriptions_that_grow_too_large_are_refused(tmp_path: Path, described: dict[str, Any], sentence: str):
    done, _ = validate(tmp_path, described)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr) < 500
    path = write_requests(tmp_path / "r.json", [described])
    refused = run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "1")
    assert refused.returncode == 1
    assert "nothing was run" in refused.stderr
    assert sentence in refused.stderr


# -- misspelt variables -----------------------------------------------------------------------------------------------

SLIPS = [job("slip", "echo", "${itt}", iteration=2), job("part", "echo", "${itval.x}", iteration=["y"])]
WARNINGS = ("${itt} is no variable and stays as it is; did you mean ${it}?", "${itval.x} stays as it is: no value has")


def test_validate_run_and_submit_warn_of_misspelt_variables(tmp_path: Path):
    path = write_requests(tmp_path / "r.json", SLIPS)
    checked = run("qcg-pm", "validate", path, "--nodes", "1")
    ran = run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "1")
    for done in (checked, ran):
        assert done.returncode == 0
        assert [warning in done.stdout + done.stderr for warning in WARNINGS] == [True, True]
    with LocalManager(["--wd", tmp_path, "--nodes", "1"], {"wdir": tmp_path}):
        done = run("qcg-pm", "submit", "--path", tmp_path, "--name", "typed", "--", "echo", "${itt}", cwd=tmp_path)
        assert done.returncode == 0
        assert WARNINGS[0] in done.stdout + done.stderr


# -- copies of registries ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose manager was killed."""
    wd = tmp_path_factory.mktemp("unfinished")
    path = write_requests(wd / "r.json", [job("a", "true", iteration=2000), job("b", script=f"touch up; {WAITS}")])
    with start("qcg-pm", "run", path, "--wd", wd, "--nodes", "1", "--agent-linger", "0") as manager:
        wait_for((wd / "up").exists, what="the job that waits")
        manager.kill()
        manager.communicate()
    (wd / "go").touch()
    wait_for(lambda: not list(wd.glob(".qcgpjm-service-*/agent-*.json")), what="the end of the agent")
    return wd


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_command_that_is_interrupted_leaves_no_copy_of_a_registry(
    unfinished: Path, tmp_path: Path, number: signal.Signals
):
    """The command is stopped as soon as its copy exists, so that the signal always arrives while there is one."""
    copies = tmp_path / "tmp"
    copies.mkdir()
    for _ in range(20):
        with start("qcg-pm", "jobs", "--path", unfinished, env=environment(TMPDIR=str(copies))) as command:
            while command.poll() is None and not list(copies.iterdir()):
                pass
            if command.poll() is None:
                command.send_signal(signal.SIGSTOP)
                interrupted = bool(list(copies.iterdir()))
                command.send_signal(number if interrupted else signal.SIGCONT)
                command.send_signal(signal.SIGCONT)
            else:
                interrupted = False
            command.communicate(timeout=60)
        if interrupted:
            break
    else:
        pytest.fail("no copy was ever seen")
    assert command.returncode not in (0, 1)
    assert [str(path) for path in copies.rglob("*")] == []


# -- programs ---------------------------------------------------------------------------------------------------------


def test_a_future_is_running_until_its_job_is_done(run_dir: Path):
    """A loop `while future.running()` also waits for a job that is queued."""
    with QCGPJExecutor(resources="1") as executor:
        first = executor.submit(lambda: str(job("first", "bash", "-c", WAITS)))
        queued = executor.submit(lambda: str(job("queued", "true")))
        seen = [(future.running(), future.done()) for future in (first, queued)]
        (run_dir / "go").touch()
        deadline = time.monotonic() + 30
        while queued.running() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert queued.result(30) == {"queued": "SUCCEED"}
        assert (queued.running(), queued.done()) == (False, True)
    assert seen == [(True, False), (True, False)]


@pytest.mark.parametrize("named", [False, True], ids=["default", "log_file"])
def test_the_log_of_a_program_is_written_to_the_configured_file(tmp_path: Path, named: bool):
    log = tmp_path / ("mine.log" if named else ".qcgpjm-client/api.log")
    configuration = {"wdir": str(tmp_path), **({"log_file": str(log)} if named else {})}
    with LocalManager(["--wd", str(tmp_path), "--nodes", "1"], configuration) as manager:
        manager.wait4(manager.submit(Jobs().add(name="a", exec="true")))
    assert "submit" in log.read_text()


def test_programs_of_version_0_2_have_a_manager_of_their_own(tmp_path: Path):
    program = (
        "from qcg.appscheduler.api.manager import LocalManager\n"
        "from qcg.appscheduler.api.job import Jobs\n"
        "manager = LocalManager(['--nodes', '1'])\n"
        "print(manager.wait4(manager.submit(Jobs().add(name='a', exec='true'))))\n"
        "manager.stopManager()\n"
        "manager.cleanup()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "{'a': 'SUCCEED'}\n"), done.stderr
