"""No process survives its job, even in another session, forked twice, or ignoring SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.host.jobhost import JOB_GRACE
from tests.support.conversation import Conversation, talk
from tests.support.pilot import Run, job, run, start, write_requests
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

FAMILY = Path(__file__).parent / "programs/family.py"
RELATIVES = ("setsid", "group", "daemon", "child", "grandchild", "job")
STUBBORN = ("stubborn", "stubborn-child")

PATIENT = (
    "from qcg.pilotjob.core import shutdown; shutdown.KILL_GRACE = 1000.0;"
    " from qcg.pilotjob.cli.main import main; main()"
)
"""A manager that waits very long for agents that end their jobs."""


def family(*options: str, name: str = "family", **more: Any) -> dict[str, Any]:
    return job(name, sys.executable, str(FAMILY), *options, wd=name, **more)


def pids(wd: Path, *names: str) -> dict[str, int]:
    """The pids of these processes, as they have written them."""
    paths = {name: wd / f"{name}.pid" for name in names}
    for name, path in paths.items():
        wait_for(partial(_is_written, path), what=f"the pid of {name}")
    return {name: int(path.read_text()) for name, path in paths.items()}


def _is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def alive(found: dict[str, int]) -> list[str]:
    return [name for name, pid in found.items() if is_alive(pid)]


def test_cancel_ends_the_whole_process_tree(tmp_path: Path):
    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[family(), job("next", "true", numCores=4)])
        await service.until("family", "EXECUTING")
        found = pids(tmp_path / "family", *RELATIVES)
        assert alive(found) == list(RELATIVES)
        await service.data("cancelJob", jobNames=["family"])
        await service.until("family", "CANCELED")
        assert alive(found) == [], "the job is final only when nothing of it is left"
        await service.until("next", "SUCCEED")

    talk(tmp_path, walk)


def test_processes_that_a_job_leaves_behind_are_killed(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [family("--leave")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", "json")
    assert Run(tmp_path, done).states == {"family": "SUCCEED"}
    assert alive(pids(tmp_path / "family", *RELATIVES)) == []


def test_finish_ends_the_whole_process_tree_and_processes_that_ignore_sigterm(tmp_path: Path):
    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[family("--stubborn", "--bare"), family(name="other", iteration=1)])
        await service.until("other:0", "EXECUTING")
        pids(tmp_path / "family", *RELATIVES, *STUBBORN)
        pids(tmp_path / "other", *RELATIVES)
        await service.ask("finish")

    ending = talk(tmp_path, walk, report_format="json")
    assert ending.unfinished == 2
    assert alive(pids(tmp_path / "family", *RELATIVES, *STUBBORN)) == []
    assert alive(pids(tmp_path / "other", *RELATIVES)) == []
    for line in (tmp_path / "jobs.report").read_text().splitlines():
        assert '"state":"CANCELED"' in line


def test_the_closing_table_counts_the_time_of_an_attempt_that_a_signal_ended(tmp_path: Path):
    script = "touch began; exec sleep 1000"
    requests = write_requests(tmp_path / "r.json", [job("it", script=script, iteration=2)])
    manager = start("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "1")
    wait_for((tmp_path / "began").exists, what="the first iteration")
    manager.send_signal(signal.SIGINT)
    out, _ = manager.communicate(timeout=60)
    (line,) = [line for line in out.splitlines() if line.startswith("From ")]
    assert not line.endswith(", 0:00:00.000000"), line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_every_process_and_leaves_all_jobs_to_be_resumed(tmp_path: Path, number: signal.Signals):
    requests = write_requests(
        tmp_path / "r.json",
        [
            job("done", "true"),
            family("--bare"),
            job("queued", "touch", "queued.ran", numCores=4),
            job("late", "true", after=["queued"]),
        ],
        [job("it", script="test -e go || sleep 1000", iteration=3)],
    )
    manager = start("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", "json")
    found = pids(tmp_path / "family", *RELATIVES)
    report, log = tmp_path / "jobs.report", tmp_path / "service.log"
    wait_for(lambda: '"done"' in report.read_text(), what="the end of the first job")
    wait_for(lambda: "request 2 answered" in log.read_text(), what="all jobs to be submitted")
    manager.send_signal(number)
    out, err = manager.communicate(timeout=60)
    assert manager.returncode == 128 + number, err
    assert alive(found) == []
    left = Run(tmp_path, subprocess.CompletedProcess([], manager.returncode, out, err))
    assert left.states == {"done": "SUCCEED"}, "nothing was decided about the others"
    assert "Traceback" not in out + err
    for text in (out, log.read_text()):
        [notice] = [line for line in text.splitlines() if f"{number.name}: stopping. " in line]
        assert notice.endswith("; 4 jobs with 3 iterations are left for --resume")
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    command = f"qcg-pm run --resume {run_dir}"
    assert err.splitlines()[-1] == f"4 jobs are left, because the manager got {number.name}. Continue with: {command}"
    assert sorted(path.name for path in run_dir.iterdir() if "contact" in path.name) == []
    (tmp_path / "go").touch()
    (tmp_path / "family" / "stop").touch()
    program, *arguments = command.split()
    resumed = Run(tmp_path, run(program, *arguments))
    assert {name: state for name, state in resumed.states.items() if ":" not in name} == dict.fromkeys(
        ("done", "family", "queued", "late", "it"), "SUCCEED"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_second_signal_kills_processes_that_ignore_sigterm_at_once_and_requeues_their_job(
    tmp_path: Path, number: signal.Signals
):
    requests = write_requests(tmp_path / "r.json", [family("--stubborn"), job("waiting", "true", numCores=4)])
    line = [sys.executable, "-c", PATIENT, "run", str(requests), "--wd", str(tmp_path), "--nodes", "4"]
    manager = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = pids(tmp_path / "family", *RELATIVES, *STUBBORN)
    manager.send_signal(number)
    wait_for(lambda: not is_alive(found["job"]), what="the first signal to end the job itself")
    assert is_alive(found["stubborn"])
    manager.send_signal(number)
    out, err = manager.communicate(timeout=JOB_GRACE - 2)  # without a second signal, it takes JOB_GRACE from the first
    assert manager.returncode == 128 + number
    assert f"{number.name}: running jobs are killed at once" in out
    assert alive(found) == []
    assert err.splitlines()[-1].startswith(
        f"2 jobs are left, because the manager got {number.name}. Continue with: qcg-pm run "
    )
    listed = run("qcg-pm", "jobs", "--path", tmp_path)
    assert [line.split() for line in listed.stdout.splitlines()[1:]] == [["family", "QUEUED"], ["waiting", "QUEUED"]]


def test_a_request_file_without_finishAfterAllTasksDone_cuts_its_jobs_off_and_warns(tmp_path: Path):
    jobs = [job("a", "sleep", "1000", numCores=2), job("b", "touch", "${it}.ran", iteration=5)]
    requests = write_requests(tmp_path / "r.json", jobs)
    done = run("qcg-pm-service", "--file-path", requests, "--wd", tmp_path, "--nodes", "2", "--report-format", "json")
    assert done.returncode == 4
    *_, cut_off, left = done.stderr.splitlines()
    assert cut_off.startswith("2 jobs were cut off: the request file has no finishAfterAllTasksDone.")
    # `a` was running and is CANCELED, or had not started and is still waiting.
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    why = "because the request file has no finishAfterAllTasksDone"
    assert left.endswith(f" left, {why}. Continue with: qcg-pm run --resume {run_dir}")
    assert "b" not in Run(tmp_path, done).states
