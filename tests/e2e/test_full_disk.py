"""Full disks: no event is lost, and the run continues when there is space again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.crashing import Crashing, waiting
from tests.support.disks import fill
from tests.support.pilot import job, write_requests
from tests.support.waiting import wait_for

JOBS = 100


class Sleepers:
    """A run of many jobs that wait for one message, on a small disk; their own output is elsewhere."""

    def __init__(self, directory: Path, disk: Path) -> None:
        self._directory = directory
        self._disk = disk
        self._word = directory / "word"
        os.mkfifo(self._word)
        script = f"cd {directory}; echo x >> began; read x < word; echo x >> ended; true"
        requests = write_requests(directory / "r.json", [job("it", script=script, iteration=JOBS)])
        self.run = Crashing(disk, requests, "--nodes", str(JOBS))

    def end_on_a_full_disk(self) -> None:
        wait_for(lambda: self._count("began") == JOBS, 60, "all jobs to begin")
        wait_for(lambda: len(self._ledger()) > 2 * JOBS, what="the ledger to have all starts")
        fill(self._disk / "hog")
        with self._word.open("wb", buffering=0) as word:  # until the last job listens
            word.write(b"\n" * JOBS)
            wait_for(lambda: self._count("ended") == JOBS, 60, "all jobs to end")

    def make_room(self) -> None:
        (self._disk / "hog").unlink()

    def check(self) -> None:
        assert {entry["state"] for entry in self.run.entries().values()} == {"SUCCEED"}
        assert len(self.run.entries()) == JOBS + 1
        assert self._count("began") == JOBS
        self.run.check_nothing_left()

    def _count(self, name: str) -> int:
        path = self._directory / name
        return len(path.read_bytes()) // 2 if path.exists() else 0

    def _ledger(self) -> list[str]:
        return (self.run.run_dir / "agent-local.ledger").read_text().splitlines()


@pytest.fixture
def sleepers(tmp_path: Path, mount: Callable[..., Path]) -> Sleepers:
    # With space for a commit after each start, in case the machine is that slow.
    return Sleepers(tmp_path, mount("disk", "size=8m"))


def test_a_manager_waits_for_disk_space_before_it_ends(sleepers: Sleepers):
    manager = sleepers.run.start()
    sleepers.end_on_a_full_disk()
    with pytest.raises(subprocess.TimeoutExpired):
        manager.wait(4)
    sleepers.make_room()
    assert sleepers.run.wait() == 0
    sleepers.check()


def test_a_manager_killed_on_a_full_disk_can_be_resumed_when_there_is_space(sleepers: Sleepers):
    sleepers.run.start()
    sleepers.end_on_a_full_disk()
    sleepers.run.kill_manager()
    sleepers.make_room()
    done = sleepers.run.finish()
    assert done.returncode == 0, done
    sleepers.check()


def test_a_second_signal_ends_a_run_that_waits_for_disk_space(sleepers: Sleepers):
    manager = sleepers.run.start()
    sleepers.end_on_a_full_disk()
    assert manager.stdout is not None
    manager.send_signal(signal.SIGINT)
    assert any("SIGINT" in line for line in manager.stdout), "two signals at once would be one"
    with pytest.raises(subprocess.TimeoutExpired):
        manager.wait(1)
    manager.send_signal(signal.SIGINT)
    assert sleepers.run.wait() == 128 + signal.SIGINT
    assert "the run is left as it is" in sleepers.run.log()
    sleepers.make_room()
    done = sleepers.run.finish()
    assert done.returncode == 0, done
    sleepers.check()


def test_signals_on_a_full_disk_print_how_the_run_ends(tmp_path: Path, mount: Callable[..., Path]):
    disk = mount("disk", "size=1m")
    for name in ("a", "b"):
        os.mkfifo(tmp_path / name)
    jobs = [job(name, script=f"cd {tmp_path}; echo > {name}.began; read x < {name}; true") for name in ("a", "b")]
    run = Crashing(disk, write_requests(tmp_path / "r.json", jobs), "--nodes", "2")
    manager = run.start()
    wait_for(lambda: all((tmp_path / f"{name}.began").exists() for name in ("a", "b")), what="both jobs to begin")
    fill(disk / "hog")
    (tmp_path / "a").write_bytes(b"\n")
    assert manager.stdout is not None
    assert any("nothing can be written" in line for line in manager.stdout)
    manager.send_signal(signal.SIGINT)
    first = next(line for line in manager.stdout if line.startswith("SIGINT: "))
    assert "nothing can be written, and the end waits for that: once there is room, " in first
    assert " is left for --resume; a second signal leaves the run as it is, to be resumed\n" in first
    why = next(line for line in manager.stdout if "could not be written: " in line)
    assert why.endswith(" The end waits for that; a second signal leaves the run as it is, to be resumed\n")
    manager.send_signal(signal.SIGINT)
    out, err = manager.communicate(timeout=60)
    assert manager.returncode == 128 + signal.SIGINT
    assert out.startswith("SIGINT: the run is left as it is, to be resumed\n")
    assert "The manager ended before all jobs did." in out
    assert err == (
        "Nothing could be written, so the run is left as it is: running jobs continue."
        f" Free disk space, and continue with: qcg-pm run --resume {run.run_dir}\n"
    )
    (disk / "hog").unlink()
    (tmp_path / "b").write_bytes(b"\n")
    assert run.finish().returncode == 0
    assert {name: entry["state"] for name, entry in run.entries().items()} == {"a": "SUCCEED", "b": "SUCCEED"}


def test_a_request_of_a_file_waits_for_disk_space(tmp_path: Path, mount: Callable[..., Path]):
    disk = mount("disk", "size=1m")
    (disk / "hog").write_bytes(bytes(600_000))
    large = job("large", "true")
    large["attributes"] = {"filling": "x" * 400_000}
    run = Crashing(disk, write_requests(tmp_path / "r.json", [job("a", "true")], [large]), "--nodes", "2")
    run.start()
    wait_for(lambda: "request 2 waits until it can be stored" in run.log_so_far(), what="the log entry")
    (disk / "hog").unlink()
    assert run.wait() == 0
    assert set(run.entries()) == {"a", "large"}


def test_resuming_a_run_on_a_full_disk_is_refused_with_a_message(tmp_path: Path, mount: Callable[..., Path]):
    disk = mount("disk", "size=1m")
    run = Crashing(disk, write_requests(tmp_path / "r.json", [waiting("a")]), "--nodes", "2")
    run.start()
    run.pid_of("a")
    run.kill_manager()
    fill(disk / "hog")
    refused = run.finish()
    assert refused.returncode == 2, refused
    assert refused.stderr.startswith("Error: ")
    assert "Traceback" not in refused.stdout + refused.stderr
    (disk / "hog").unlink()
    run.release()
    assert run.finish().returncode == 0
    run.check_success({"a"}, set())


def test_a_log_that_cannot_be_opened_is_one_error_message(tmp_path: Path):
    run = Crashing(tmp_path, write_requests(tmp_path / "r.json", [waiting("a")]), "--nodes", "2")
    run.start()
    run.pid_of("a")
    run.kill_manager()
    log = run.run_dir / "service.log"
    log.rename(tmp_path / "kept.log")
    log.mkdir()
    refused = run.finish()
    assert (refused.returncode, refused.stderr.startswith("Error: ")) == (2, True), refused
    assert "Traceback" not in refused.stderr
    log.rmdir()
    run.release()
    assert run.finish().returncode == 0
