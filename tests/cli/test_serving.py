"""`qcg-pm-service --net`: its messages, and serving a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.pilot import WAIT, job, run, start, write_requests
from tests.support.serving import Served, served
from tests.support.waiting import wait_for


def finished(wd: Path, *options: str) -> Path:
    """A run that was served, and got a finish request."""
    with served(wd, "--nodes", "1", *options) as service:
        service.submit(job("a", "true"))
        service.wait("a", "SUCCEED")
        service.ask("finish")
        service.process.wait(60)
    return service.run_dir


def again(run_dir: Path, *options: str) -> Served:
    """The same run, served once more."""
    service = Served.__new__(Served)
    service.wd, service.run_dir = run_dir.parent, run_dir
    service.resume(*options)
    return service


@pytest.mark.parametrize("more", [False, True], ids=["alone", "with a file"])
def test_a_run_that_got_a_finish_request_is_served_again(tmp_path: Path, more: bool):
    run_dir = finished(tmp_path)
    path = write_requests(tmp_path / "more.json", [job("b", "true")])
    service = again(run_dir, "--net", *(("--file-path", str(path)) if more else ()))
    try:
        service.submit(job("c", "true"))
        service.wait("c", "SUCCEED")
        assert list(service.data("listJobs")["jobs"]) == (["a", "b", "c"] if more else ["a", "c"])
        assert service.ask("finish")["code"] == 0
        assert service.process.wait(60) == 0
    finally:
        service.end()


@pytest.mark.parametrize("command", ["qcg-pm", "qcg-pm-service"])
def test_a_run_whose_request_file_has_a_control_request_is_served_until_a_finish_request(tmp_path: Path, command: str):
    path = write_requests(tmp_path / "r.json", [job("a", "true")], WAIT)
    begin: tuple[Any, ...] = ("run", path) if command == "qcg-pm" else ("--file-path", path)
    assert run(command, *begin, "--nodes", "1", "--wd", tmp_path, "--id", "x").returncode == 0
    service = again(tmp_path / ".qcgpjm-service-x", "--net")
    try:
        service.submit(job("b", "true"))
        service.wait("b", "SUCCEED")
        assert service.process.poll() is None
    finally:
        service.end()


def test_a_run_that_was_served_keeps_its_options_and_is_served_again(tmp_path: Path):
    service = again(finished(tmp_path))
    try:
        service.submit(job("b", "true"))
        service.wait("b", "SUCCEED")
        assert service.ask("finish")["code"] == 0
        assert service.process.wait(60) == 0
    finally:
        service.end()


def test_a_service_prints_its_address_and_final_summary_to_stderr(tmp_path: Path):
    with start("qcg-pm-service", "--net", "--nodes", "1", "--wd", tmp_path, "--id", "x") as service:
        assert service.stderr is not None
        first = service.stderr.readline()
        run_dir = tmp_path / ".qcgpjm-service-x"
        assert first.startswith(f"Serving {run_dir} at tcp://127.0.0.1:")
        assert f"--path {tmp_path}" in first
        assert "`qcg-pm finish`" in first
        assert run("qcg-pm", "submit", "--wait", "--", "false", cwd=tmp_path).returncode == 1
        assert run("qcg-pm", "finish", cwd=tmp_path).returncode == 0
        out, err = service.communicate(timeout=60)
    assert (out, err) == ("", "The service has ended: 1 FAILED.\n")


def test_a_service_survives_the_reader_of_its_output(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        assert service.process.stderr is not None
        service.process.stderr.close()
        service.process.stderr = None
        wait_for(lambda: service.ask("status")["code"] == 0, what="an answer")
        service.ask("finish")
        assert service.process.wait(60) == 0
