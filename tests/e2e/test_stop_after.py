"""`--stop-after`: a run with failures stops by itself, and continues when it is resumed."""

from __future__ import annotations

from pathlib import Path

from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import FAILURE_LIMIT_REACHED
from qcg.pilotjob.journal.snapshot import snapshot
from tests.support.pilot import Run, job, run, write_requests
from tests.support.serving import served


def flag(wd: Path) -> bool:
    (run_dir,) = wd.glob(".qcgpjm-service-*")
    with snapshot(run_dir / FILE_NAME) as connection:
        return FAILURE_LIMIT_REACHED.read(connection)


def test_the_first_failure_ends_the_run_once_running_jobs_have_ended(tmp_path: Path):
    running = job(
        "running", script="touch started; until [ -e failed ]; do sleep 0.02; done; sleep 0.3; echo done > running.out"
    )
    failing = job("failing", script="until [ -e ready ] && [ -e started ]; do sleep 0.02; done; touch failed; exit 3")
    waiting = [job(name, "touch", f"{name}.ran") for name in ("w1", "w2")]
    first = job("first", "touch", "ready")
    requests = write_requests(tmp_path / "r.json", [first, failing, running, *waiting])
    options = ("--wd", tmp_path, "--cores", "2", "--report-format", "json")
    done = run("qcg-pm", "run", requests, *options, "--stop-after", "1")
    assert done.returncode == 4, done.stderr
    assert (tmp_path / "running.out").exists(), "it was running, and went on"
    assert not list(tmp_path.glob("*.ran"))
    assert "there was 1 failure (--stop-after 1): no job is started any more, and running jobs continue" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "2 jobs are left, because there was 1 failure (--stop-after 1). Continue with: qcg-pm run --res"
    )
    assert last.endswith("(--rerun failed repeats failed jobs)")
    assert Run(tmp_path, done).states == {"first": "SUCCEED", "failing": "FAILED", "running": "SUCCEED"}
    assert flag(tmp_path)
    again = run("qcg-pm", "run", "--resume", tmp_path)
    assert again.returncode == 1, "one job has failed"
    assert {path.name for path in tmp_path.glob("*.ran")} == {"w1.ran", "w2.ran"}
    assert not flag(tmp_path)


def test_prefilled_short_jobs_are_retracted_and_none_is_lost(tmp_path: Path):
    script = "echo >> ran-${it}; [ ${it} != 300 ]"
    sweep = job("it", script=script, iteration=2000)
    requests = write_requests(tmp_path / "r.json", [sweep])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "2", "--stop-after", "1")
    assert done.returncode == 4, done.stderr
    # Cores may be a few jobs ahead of each other.
    assert (tmp_path / "ran-300").exists()
    assert len(list(tmp_path.glob("ran-*"))) < 1500
    again = run("qcg-pm", "run", "--resume", tmp_path, "--stop-after", "0")
    assert again.returncode == 1
    lines = {path.name: path.read_text() for path in tmp_path.glob("ran-*")}
    assert len(lines) == 2000
    assert set(lines.values()) == {"\n"}, "each ran once"


def test_a_manager_that_serves_clients_ends_too(tmp_path: Path):
    with served(tmp_path, "--cores", "1", "--stop-after", "2") as service:
        service.submit(*[job(f"bad{number}", script="sleep 0.3; false") for number in range(3)])
        _, err = service.process.communicate(timeout=60)
    assert service.process.returncode == 4
    assert "1 job is left, because there were 2 failures (--stop-after 2). Continue with: qcg-pm-service --net" in err
