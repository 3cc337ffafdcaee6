"""Nothing survives the end of its job: not what left its session, not what was forked twice or ignores SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.conversation import Conversation, talk
from tests.support.pilot import Run, job, run, start, write_requests
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

FAMILY = Path(__file__).parent / "programs/family.py"
RELATIVES = ("setsid", "group", "daemon", "child", "grandchild", "job")
STUBBORN = ("stubborn", "stubborn-child")

PATIENT = (
    "from qcg.pilotjob import service; service.KILL_GRACE = 1000.0; from qcg.pilotjob.cli.main import main; main()"
)
"""A manager that would wait very long for jobs which ignore SIGTERM."""


def family(*options: str, name: str = "family", **more: Any) -> dict[str, Any]:
    return job(name, sys.executable, str(FAMILY), *options, wd=name, **more)


def pids(wd: Path, *names: str) -> dict[str, int]:
    """As the processes have written them."""
    paths = {name: wd / f"{name}.pid" for name in names}
    for name, path in paths.items():
        wait_for(partial(_is_written, path), what=f"the pid of {name}")
    return {name: int(path.read_text()) for name, path in paths.items()}


def _is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def alive(found: dict[str, int]) -> list[str]:
    return [name for name, pid in found.items() if is_alive(pid)]


def test_cancel_ends_the_whole_tree(tmp_path: Path):
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


def test_what_a_job_leaves_behind_when_it_ends_is_ended_too(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [family("--leave")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", "json")
    assert Run(tmp_path, done).states == {"family": "SUCCEED"}
    assert alive(pids(tmp_path / "family", *RELATIVES)) == []


def test_finish_ends_the_whole_tree_and_what_ignores_sigterm(tmp_path: Path):
    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[family("--stubborn", "--bare"), family(name="other", iteration=1)])
        await service.until("other:0", "EXECUTING")
        pids(tmp_path / "family", *RELATIVES, *STUBBORN)
        pids(tmp_path / "other", *RELATIVES)
        await service.ask("finish")

    ending = talk(tmp_path, walk, report_format="json")
    assert ending.cut_off == 2
    assert alive(pids(tmp_path / "family", *RELATIVES, *STUBBORN)) == []
    assert alive(pids(tmp_path / "other", *RELATIVES)) == []
    for line in (tmp_path / "jobs.report").read_text().splitlines():
        assert '"state":"CANCELED"' in line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_all_jobs_and_completes_the_report(tmp_path: Path, number: signal.Signals, code: int):
    requests = write_requests(
        tmp_path / "r.json",
        [
            job("done", "true"),
            family("--bare"),
            job("queued", "true", numCores=4),
            job("late", "true", after=["queued"]),
        ],
        [job("it", "sleep", "1000", iteration=3)],
    )
    manager = start("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4", "--report-format", "json")
    found = pids(tmp_path / "family", *RELATIVES)
    report, log = tmp_path / "jobs.report", tmp_path / "service.log"
    wait_for(lambda: '"done"' in report.read_text(), what="the end of the first job")
    wait_for(lambda: "request 2 answered" in log.read_text(), what="all jobs to be there")
    manager.send_signal(number)
    out, err = manager.communicate(timeout=60)
    assert manager.returncode == code, err
    assert alive(found) == []
    states = Run(tmp_path, subprocess.CompletedProcess([], manager.returncode, out, err)).states
    assert {name: states[name] for name in ("done", "family", "queued", "late", "it")} == {
        "done": "SUCCEED",
        "family": "CANCELED",
        "queued": "CANCELED",
        "late": "CANCELED",
        "it": "CANCELED",
    }
    assert "CANCELED" in out, "the closing table"
    assert "Traceback" not in out + err
    told = f"{number.name}: 4 jobs that have not ended are cancelled, for good"
    assert told in out
    assert told in log.read_text()
    assert sorted(path.name for path in next(tmp_path.glob(".qcgpjm*")).iterdir() if "contact" in path.name) == []


def test_a_second_sigint_ends_at_once_what_ignores_sigterm(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [family("--stubborn")])
    line = [sys.executable, "-c", PATIENT, "run", str(requests), "--wd", str(tmp_path), "--nodes", "4"]
    manager = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = pids(tmp_path / "family", *RELATIVES, *STUBBORN)
    manager.send_signal(signal.SIGINT)
    wait_for(lambda: not is_alive(found["job"]), what="the first signal to end the job itself")
    assert is_alive(found["stubborn"])
    manager.send_signal(signal.SIGINT)
    manager.communicate(timeout=60)
    assert manager.returncode == 130
    assert alive(found) == []


def test_a_file_without_the_request_to_wait_cuts_its_jobs_off_and_says_so(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "sleep", "1000"), job("b", "sleep", "1000", iteration=5)])
    done = run("qcg-pm-service", "--file-path", requests, "--wd", tmp_path, "--nodes", "2", "--report-format", "json")
    assert done.returncode == 1
    assert "2 jobs were cut off" in done.stderr
    assert "finishAfterAllTasksDone" in done.stderr
    states = Run(tmp_path, done).states
    assert (states["a"], states["b"]) == ("CANCELED", "CANCELED")
