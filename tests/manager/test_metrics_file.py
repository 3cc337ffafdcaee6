"""`--metrics-file`: the file is always complete, and the run does not depend on it."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from qcg.pilotjob.manager import metrics_file
from qcg.pilotjob.manager.metrics_file import MetricsFile, write_atomically
from qcg.pilotjob.report import attempts
from qcg.pilotjob.report.run_summary import RunSummary
from tests.report.test_metrics_text import samples, summary
from tests.support.pilot import environment, job, run, start, write_requests
from tests.support.waiting import wait_for


def values(path: Path) -> dict[tuple[str, str], float]:
    return samples(path.read_text())


# -- writing --------------------------------------------------------------------------------------------------------


def test_a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode(tmp_path: Path):
    path = tmp_path / "run.prom"
    before = os.umask(0)
    try:
        write_atomically(str(path), "one")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        write_atomically(str(path), "two")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text() == "two"
    assert [found.name for found in tmp_path.iterdir()] == ["run.prom"]


def test_a_reader_never_sees_a_part_of_it(tmp_path: Path):
    path = tmp_path / "run.prom"
    texts = {letter * 100_000 for letter in "abc"}
    write_atomically(str(path), "a" * 100_000)
    over = threading.Event()

    def write() -> None:
        for _ in range(100):
            for text in texts:
                write_atomically(str(path), text)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not over.is_set():
        assert path.read_text() in texts
    writer.join()


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / f".run.prom.{os.getpid()}").symlink_to(precious)
    write_atomically(str(tmp_path / "run.prom"), "text")
    assert precious.read_text() == "mine"
    assert (tmp_path / "run.prom").read_text() == "text"


def test_a_path_that_is_no_regular_file_is_left_alone(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(OSError, match="is no regular file"):
            write_atomically(str(path), "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


# -- in the event loop ------------------------------------------------------------------------------------------------


def follow(path: Path, test: Callable[[MetricsFile], Awaitable[None]], *made: RunSummary | Exception) -> None:
    """Run a test with a file that gets these summaries in turn, and repeats the last one."""
    left = list(made)

    async def summarise() -> RunSummary:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def begin() -> None:
        file = MetricsFile(str(path), summarise)
        writing = asyncio.ensure_future(file.keep_up_to_date())
        try:
            await test(file)
        finally:
            writing.cancel()

    asyncio.run(begin())


async def until(predicate: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, predicate)


def test_the_file_is_written_at_once_periodically_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_file, "INTERVAL", 0.01)
    path = tmp_path / "run.prom"

    async def test(file: MetricsFile) -> None:
        await until(lambda: path.exists() and values(path)["qcg_pm_running_attempts", ""] == 7)
        assert values(path)["qcg_pm_manager_alive", ""] == 1
        await file.finish()
        assert values(path)["qcg_pm_manager_alive", ""] == 0

    follow(path, test, summary(running=5), summary(running=7))


def test_a_file_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(metrics_file, "INTERVAL", 0.01)
    path = tmp_path / "later" / "run.prom"
    caplog.set_level(logging.WARNING)

    async def test(file: MetricsFile) -> None:
        await until(lambda: "metrics" in caplog.text)
        await asyncio.sleep(0.2)
        assert caplog.text.count("the metrics cannot be written to") == 1
        path.parent.mkdir()
        await until(path.exists)
        await file.finish()

    follow(path, test, summary())
    assert "No such file or directory" in caplog.text


def test_a_hanging_file_system_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_file, "INTERVAL", 0.01)
    monkeypatch.setattr(metrics_file, "PATIENCE", 0.1)
    go_on, calls = threading.Event(), []

    def hang(path: str, text: str) -> None:
        calls.append(text)
        go_on.wait()

    monkeypatch.setattr(metrics_file, "write_atomically", hang)

    async def test(file: MetricsFile) -> None:
        await until(lambda: bool(calls))
        await asyncio.sleep(0.1)
        await file.finish()
        go_on.set()

    follow(tmp_path / "run.prom", test, summary())
    assert len(calls) == 1


def test_a_summary_that_cannot_be_made_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def test(file: MetricsFile) -> None:
        await until(lambda: "cannot be computed" in caplog.text)
        await file.finish()

    follow(tmp_path / "run.prom", test, RuntimeError("a defect"))
    assert not (tmp_path / "run.prom").exists()


def test_the_previous_summary_is_written_when_the_last_one_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(metrics_file, "SUMMARY_TIMEOUT", 0.05)
    made = [summary(running=5)]

    async def summarise() -> RunSummary:
        return made.pop() if made else await asyncio.Future()

    async def test() -> None:
        file = MetricsFile(str(tmp_path / "run.prom"), summarise)
        await file.take_summary()
        await asyncio.wait_for(file.take_last_summary(), 60)
        await file.finish()

    asyncio.run(test())
    assert values(tmp_path / "run.prom")["qcg_pm_running_attempts", ""] == 5
    assert "the last summary took longer than 0.05 s" in caplog.text


# -- in real runs -----------------------------------------------------------------------------------------------------


def test_a_run_writes_its_metrics_while_it_runs_and_at_its_end(tmp_path: Path):
    path = tmp_path / "run.prom"
    jobs = [job("it", script="until [ -e go ]; do sleep 0.02; done; [ ${it} != 1 ]", iteration=3)]
    requests = write_requests(tmp_path / "r.json", jobs)
    process = start("qcg-pm", "run", requests, "--cores", "2", "--metrics-file", "run.prom", cwd=tmp_path)
    wait_for(path.exists, what="the file")
    assert values(path)["qcg_pm_cores", ""] == 2
    (tmp_path / "go").touch()
    process.communicate(timeout=60)
    found = values(path)
    assert found["qcg_pm_manager_alive", ""] == 0
    assert (found["qcg_pm_iterations", "SUCCEED"], found["qcg_pm_iterations", "FAILED"]) == (2, 1)
    assert found["qcg_pm_jobs", "FAILED"] == 1
    assert (found["qcg_pm_attempt_starts_total", ""], found["qcg_pm_attempt_ends_total", ""]) == (3, 3)
    assert found["qcg_pm_attempt_failures_total", ""] == 1
    assert [one.name for one in tmp_path.glob(".run.prom*")] == []


@pytest.mark.parametrize("run_id", ['a"} 1 b', "a\nb", "a\\", "a\x1b[2J"])
def test_a_hostile_id_of_a_run_does_no_harm(tmp_path: Path, run_id: str):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--id", run_id, "--metrics-file", tmp_path / "run.prom")
    assert done.returncode == 0, done.stderr
    families = list(text_string_to_metric_families((tmp_path / "run.prom").read_text()))
    assert len({sample.labels["run"] for family in families for sample in family.samples}) == 1


def test_totals_do_not_fall_when_a_run_is_resumed(tmp_path: Path):
    path = tmp_path / "run.prom"
    requests = write_requests(tmp_path / "r.json", [job("it", "false", iteration=3)])
    assert run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "2", "--metrics-file", path).returncode == 1
    first = values(path)
    assert run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed").returncode == 1
    again = values(path)
    for name in ("starts", "ends", "failures"):
        assert first[f"qcg_pm_attempt_{name}_total", ""] == 3
        assert again[f"qcg_pm_attempt_{name}_total", ""] == 6


def test_failures_count_attempts_that_are_repeated(tmp_path: Path):
    path = tmp_path / "run.prom"
    jobs = [job("again", script="[ ${attempt} = 3 ]", retry=2), job("bad", "false")]
    requests = write_requests(tmp_path / "r.json", jobs)
    assert run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "2", "--metrics-file", path).returncode == 1
    failed = [one for one in attempts(tmp_path) if one.state == "FAILED"]
    assert len(failed) == 3
    assert values(path)["qcg_pm_attempt_failures_total", ""] == 3
    requests = write_requests(tmp_path / "good.json", [job("good", "true")])
    again = run("qcg-pm", "run", requests, "--resume", tmp_path, "--metrics-file", path)
    assert again.returncode == 1, again.stderr
    assert values(path)["qcg_pm_attempt_failures_total", ""] == 3


def test_a_run_whose_file_cannot_be_written_any_more_runs_all_the_same(tmp_path: Path):
    (tmp_path / "metrics").mkdir()
    path = tmp_path / "metrics" / "run.prom"
    requests = write_requests(tmp_path / "r.json", [job("a", "test", "-e", "go")])
    assert run("qcg-pm", "run", requests, "--wd", tmp_path, "--metrics-file", path).returncode == 1
    path.unlink()
    path.parent.rmdir()
    (tmp_path / "go").touch()
    done = run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed")
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "service.log").read_text()
    assert f"the metrics cannot be written to {path}: No such file or directory" in log


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("/no/such/directory/run.prom", "there is no directory '/no/such/directory' for the file 'run.prom'"),
        ("/dev/null", "'/dev/null' is no regular file"),
        ("/", "'/' is no regular file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path, given: str, problem: str):
    requests = write_requests(tmp_path / "r.json", [job("a", "touch", "started")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--metrics-file", given)
    assert (done.returncode, problem in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


HANGS = """
import threading
from qcg.pilotjob.report import tail
def hang(path, most=0):
    open("reading", "w").close()
    threading.Event().wait()
tail.last_lines = hang
"""


def test_a_manager_with_metrics_ends_while_an_output_file_hangs(tmp_path: Path):
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "sitecustomize.py").write_text(HANGS)
    jobs = [job("bad", "sh", "-c", "echo broken >&2; exit 3", stderr="bad.err")]
    requests = write_requests(tmp_path / "r.json", jobs, {"request": "control", "command": "finishAfterAllTasksDone"})
    options = ("--file", "--file-path", requests, "--metrics-file", "run.prom", "--nodes", "1")
    done = run("qcg-pm-service", *options, cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path / "shims")))
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "reading").exists()
    assert 'qcg_pm_jobs{run="' in (tmp_path / "run.prom").read_text()
