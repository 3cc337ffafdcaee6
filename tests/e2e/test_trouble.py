"""Faults that a run reports with a message and survives."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.conversation import Conversation, talk
from tests.support.disks import fill
from tests.support.pilot import WAIT, Run, job, run, run_requests, start, write_requests
from tests.support.waiting import wait_for


def test_a_job_that_cannot_start_fails_with_its_reason_and_the_others_run(tmp_path: Path, mount: Callable[..., Path]):
    read_only = mount("read-only", "size=1m,ro")
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    (tmp_path / "no-interpreter").write_text("#!/no/such/interpreter\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    expected = {
        "no-program": (job("no-program", "no-such-program"), "no-such-program is not found on PATH"),
        "no-path": (job("no-path", "/no/such/program"), "/no/such/program does not exist"),
        "mode": (job("mode", str(tmp_path / "not-executable")), "is not executable"),
        "interpreter": (job("interpreter", str(tmp_path / "no-interpreter")), "/no/such/interpreter"),
        "folder": (job("folder", str(tmp_path / "directory")), "is a directory"),
        "stdin": (job("stdin", "cat", stdin="missing"), "stdin file missing does not exist"),
        "stdin-folder": (job("stdin-folder", "cat", stdin="directory"), "is a directory"),
        "stdout": (job("stdout", "true", stdout="directory"), "stdout file directory is a directory"),
        "stderr": (job("stderr", "true", stderr="file/below"), "stderr file file/below cannot be opened"),
        "read-only": (job("read-only", "true", stdout=str(read_only / "out")), "Read-only file system"),
        "wd": (job("wd", "true", wd="file/below"), "working directory"),
        "wd-read-only": (job("wd-read-only", "true", wd=str(read_only / "wd")), "Read-only file system"),
        "wd-file": (job("wd-file", "true", wd="file"), "working directory"),
        "long": (job("long", script="echo " + "x" * 3_000_000), "longer than"),
        "long-env": (job("long-env", "true", env={"LONG": "x" * 200_000}), "given"),
    }
    good = [job("good", "true"), job("out", "echo", "fine", stdout="made/on/the/way")]
    done = run_requests(tmp_path, [entry for entry, _ in expected.values()], good)
    report = done.report
    for name, (_, sentence) in expected.items():
        assert report[name]["state"] == "FAILED", name
        assert sentence in report[name]["messages"], name
    assert done.states["good"] == done.states["out"] == "SUCCEED"
    assert (tmp_path / "made/on/the/way").read_text() == "fine\n"
    assert "Traceback" not in done.done.stderr + done.done.stdout
    assert "Traceback" not in (tmp_path / "service.log").read_text()


def test_a_full_disk_stops_new_jobs_until_there_is_space_and_nothing_is_lost(
    tmp_path: Path, mount: Callable[..., Path]
):
    # With space for a commit after each job, in case the machine is that slow.
    disk = mount("disk", "size=20m")
    requests = write_requests(
        tmp_path / "r.json",
        [job("fill", script="cat /dev/zero > hog; true"), job("many", "true", iteration=300, after=["fill"])],
        [job("last", "true", after=["many"])],
        WAIT,
    )
    manager = start("qcg-pm", "run", requests, "--wd", disk, "--nodes", "2", "--report-format", "json")
    wait_for(lambda: "no new job is started" in _logged(disk), what="the log to say that the disk is full")
    assert manager.stdout is not None
    assert "nothing can be written" in manager.stdout.readline()
    (disk / "hog").unlink()
    out, err = manager.communicate(timeout=60)
    assert manager.returncode == 0, (out, err)
    done = Run(disk, subprocess.CompletedProcess([], 0, out, err))
    assert len(done.states) == 303
    assert set(done.states.values()) == {"SUCCEED"}
    assert "writing works again" in _logged(disk)
    assert "Traceback" not in out + err + _logged(disk)


def test_a_submission_on_a_full_disk_is_refused_and_leaves_no_job(tmp_path: Path, mount: Callable[..., Path]):
    disk = mount("disk", "size=1m")
    jobs = [job("a", "true"), job("it", "true", iteration=20, after=["a"])]
    # Larger than the free space in the last page of the journal.
    jobs[0]["attributes"] = {"filling": "x" * 20_000}

    async def walk(service: Conversation) -> None:
        await service.data("submit", jobs=[job("first", "true")])
        await service.until("first", "SUCCEED")
        fill(disk / "hog")
        refused = await service.ask("submit", jobs=jobs)
        assert refused["code"] == 1
        assert "No space left" in refused["message"] or "full" in refused["message"]
        assert set((await service.data("listJobs"))["jobs"]) == {"first"}
        (disk / "hog").unlink()
        await service.data("submit", jobs=jobs)
        await service.until("it", "SUCCEED")

    assert talk(disk, walk, report_format="json").exit_code == 0
    assert set(Run(disk, subprocess.CompletedProcess([], 0)).states.values()) == {"SUCCEED"}


def test_a_run_cannot_start_on_a_full_or_read_only_disk(tmp_path: Path, mount: Callable[..., Path]):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")], WAIT)
    full = mount("full", "size=64k")
    fill(full / "hog")
    for wd in (full, mount("read-only", "size=64k,ro")):
        done = run("qcg-pm", "run", requests, "--wd", wd, "--nodes", "1")
        assert done.returncode == 2, done
        assert "Error: " in done.stderr
        assert "Traceback" not in done.stdout + done.stderr


def _logged(disk: Path) -> str:
    log = disk / "service.log"
    return log.read_text() if log.exists() else ""
