"""Files of the working directory and variables of the environment that must not affect a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.pilot import environment, job, run, run_requests


def test_files_in_the_working_directory_are_not_imported_as_modules(tmp_path: Path):
    for name in ("socket.py", "random.py", "queue.py", "zmq.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the user was taken for a module')")
    done = run_requests(tmp_path, [job("a", "true")])
    assert done.states == {"a": "SUCCEED"}


def test_a_job_cannot_set_the_step_id_of_another_job(tmp_path: Path):
    mark = {"QCG_PM_STEP_ID": "mine"}
    jobs = [
        job("short", "sleep", "60", env=mark, wt="1s"),
        job("long", "bash", "-c", "echo $QCG_PM_STEP_ID; sleep 3", env=mark, stdout="mark"),
    ]
    done = run_requests(tmp_path, jobs)
    assert done.states == {"short": "FAILED", "long": "SUCCEED"}
    assert "mine" not in (tmp_path / "mark").read_text()


def test_a_script_that_only_mentions_modules_keeps_its_path(tmp_path: Path):
    job_of = {"name": "a", "execution": {"script": "# no module here\necho $PATH", "stdout": "path"}}
    path = write_and_run(tmp_path, job_of, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert path.startswith(f"{tmp_path}/bin:")


def test_jobs_see_only_gpus_that_they_asked_for_where_gpus_were_named(tmp_path: Path):
    job_of = {"name": "a", "execution": {"script": 'echo "[$CUDA_VISIBLE_DEVICES]"', "stdout": "path"}}
    assert write_and_run(tmp_path, job_of, CUDA_VISIBLE_DEVICES="0,1") == "[]\n"


def test_two_spellings_of_a_path_are_one_file(tmp_path: Path):
    done = run_requests(tmp_path, [job("a", "bash", "-c", "echo out; echo err >&2", stdout="o", stderr="./o")])
    assert done.states == {"a": "SUCCEED"}
    assert (tmp_path / "o").read_text() == "out\nerr\n"


def write_and_run(wd: Path, job_of: dict, **changes: str) -> str:
    """The content of `path`, which a job wrote under a manager with these variables."""
    (wd / "requests.json").write_text(json.dumps([{"request": "submit", "jobs": [job_of]}]))
    done = run("qcg-pm", "run", wd / "requests.json", "--wd", wd, env=environment(**changes))
    assert done.returncode == 0, done.stdout
    return (wd / "path").read_text()


def test_an_agent_that_need_not_linger_still_waits_for_its_manager(tmp_path: Path):
    done = run_requests(tmp_path, [job("a", "true")], options=("--nodes", "1", "--agent-linger", "0"))
    assert done.states == {"a": "SUCCEED"}
