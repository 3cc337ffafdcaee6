"""Commands on ended runs in which only held jobs, and jobs that wait for them, are left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qcg.pilotjob.cli.main import main
from tests.support.pilot import job, run, start, write_requests
from tests.support.waiting import wait_for

HELD = {"hold": True}


def end_run(wd: Path, *jobs: dict[str, Any], then: Sequence[dict[str, Any]] = ()) -> Path:
    """Run jobs until nothing can be started any more; returns the run directory."""
    done = run(
        "qcg-pm", "run", write_requests(wd / "r.json", list(jobs), *then), "--wd", wd, "--id", "held", "--nodes", "1"
    )
    assert done.returncode == 4, done.stderr
    return wd / ".qcgpjm-service-held"


def pm(*arguments: str | Path) -> tuple[str, str]:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return done.stdout, done.stderr


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["why", "n"], ["runs"], ["release", "h"], ["wait"]])
def test_the_resume_command_releases_when_only_held_jobs_are_left(command: list[str], tmp_path: Path):
    run_dir = end_run(tmp_path, job("n", "true", after=["h"]), job("h", "true") | HELD, job("done", "true"))
    where = [tmp_path] if command == ["runs"] else ["-p", tmp_path]
    name, *rest = command
    _, stderr = pm(name, *where, *rest)
    assert f"`qcg-pm run --resume {run_dir} --release`" in stderr


def test_dependents_of_held_jobs_are_explained(tmp_path: Path):
    end_run(
        tmp_path,
        job("h", "true") | HELD,
        job("sweep", "true", iteration=3) | HELD,
        job("next", "true", after=["h"]),
        job("last", "true", after=["next"]),
        job("one", "true", after=["sweep:1"]),
        then=[{"request": "releaseJob", "jobNames": "sweep:0"}],
    )
    stdout, stderr = pm("why", "next", "last", "one", "-p", tmp_path)
    assert stdout.splitlines() == [
        "next QUEUED: it waits for 'h', which is held",
        "last QUEUED: it waits for 'next', which waits for a held job",
        "one QUEUED: it waits for 'sweep:1', which is held",
    ]
    assert "--release`" in stderr


def test_held_jobs_stay_held_while_other_jobs_are_left(tmp_path: Path):
    jobs = [job("h", "true") | HELD, job("a", "sleep", "60"), job("b", "sleep", "60"), job("n", "true", after=["b"])]
    run_dir = end_run(tmp_path, *jobs, then=[{"request": "finish"}])
    stdout, stderr = pm("why", "n", "-p", tmp_path)
    assert "held" not in stdout
    assert f"Continue: `qcg-pm run --resume {run_dir}`" in stderr


def test_holding_in_a_run_of_a_file_says_that_it_ends_with_held_jobs(tmp_path: Path):
    gate = job("gate", script="until [ -e go ]; do sleep 0.02; done")
    path = write_requests(tmp_path / "r.json", [gate, job("h", "true", after=["gate"])])
    with start("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "1", "--id", "x") as manager:
        wait_for(lambda: "gate" in pm("jobs", "-p", tmp_path, "-s", "executing")[0], what="the first job")
        stdout, stderr = pm("hold", "h", "-p", tmp_path)
        (tmp_path / "go").touch()
        manager.communicate()
    assert stdout == "1 held\n"
    assert stderr == (
        "Note: the run ends when only held jobs are left, and continues with:"
        f" qcg-pm run --resume {tmp_path}/.qcgpjm-service-x --release\n"
    )
    assert manager.returncode == 4
