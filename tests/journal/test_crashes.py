"""Crashes, full disks and second managers: committed changes survive, and other losses are reported."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qcg.pilotjob.core.effects import Added, Removed
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.journal import schema
from qcg.pilotjob.journal.errors import JournalError, RegistryInUseError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import REPORT_SIZE
from tests.journal.samples import ended, job, run, scheduled

# Adds and runs jobs forever, and prints a line after each commit. Checkpoints are frequent, so that some are hit.
WRITER = """
import sys
from pathlib import Path
from qcg.pilotjob.core.effects import Added
from qcg.pilotjob.journal import schema
from qcg.pilotjob.journal.journal import Journal
from tests.journal.samples import ended, job, run, scheduled

schema.PAGES_BETWEEN_CHECKPOINTS = int(sys.argv[2])
path = Path(sys.argv[1])
journal = Journal.open(path) if path.exists() else Journal.create(path)
seq = journal.load().max_seq
while True:
    seq += 1
    one = job(seq)
    start = run(one)
    journal.record(Added([one]))
    journal.commit()
    journal.sync()
    print("added", seq, flush=True)
    journal.record(scheduled(start))
    journal.commit()
    journal.record(ended(start))
    journal.set_acked("agent", seq)
    journal.commit()
    print("ended", seq, flush=True)
"""


def start_child(code: str, *arguments: object) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_committed_changes_survive_a_killed_manager(tmp_path: Path):
    path = tmp_path / "registry.sqlite"
    chance = random.Random(1)
    printed = {"added": 0, "ended": 0}
    for _ in range(12):
        with start_child(WRITER, path, 20) as child:
            assert child.stdout is not None
            for _ in range(chance.randint(1, 300)):
                word, seq = child.stdout.readline().split()
                printed[word] = int(seq)
            child.kill()
            for line in child.stdout:
                if line.endswith("\n"):
                    word, seq = line.split()
                    printed[word] = int(seq)
        assert child.returncode == -signal.SIGKILL
        journal = Journal.open(path)
        loaded = journal.load()
        final = [one.seq for one in loaded.final]
        unfinished = [one.seq for one in loaded.unfinished]
        assert sorted(final + unfinished) == list(range(1, loaded.max_seq + 1))
        assert printed["added"] <= loaded.max_seq <= printed["added"] + 1
        assert printed["ended"] in (0, *final)
        assert journal.acked().get("agent", 0) == max(final, default=0)
        journal.close()


def test_a_second_manager_is_refused_while_the_first_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "registry.sqlite"
    monkeypatch.setattr(schema, "SECONDS_TO_WAIT_FOR_A_LOCK", 0.05)
    with start_child(WRITER, path, 20) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(RegistryInUseError, match=r"is in use by another manager; end that one first"):
            Journal.open(path)
        first.stdout.readline()
        first.kill()
    Journal.open(path).close()


# Holds the lock of the registry, and does not touch its content.
HOLDER = """
import fcntl, signal, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 512, 0x40000000)
    print("locked", flush=True)
    signal.pause()
"""


def test_a_file_system_without_locks_still_has_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A lock cannot be acquired there, which looks like a lock of another manager."""
    path = tmp_path / "registry.sqlite"
    Journal.create(path).close()
    monkeypatch.setattr(schema, "SECONDS_TO_WAIT_FOR_A_LOCK", 0.05)
    monkeypatch.setattr(schema, "locks_work", lambda directory: False)
    with start_child(HOLDER, path) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        journal = Journal.open(path)
        journal.record(Added([job(1)]))
        journal.commit()
        journal.sync()
        assert journal.load().max_seq == 1
        journal.close()
        holder.kill()
    monkeypatch.undo()
    journal = Journal.open(path)
    assert journal.load().max_seq == 1
    journal.close()


def test_locks_are_known_to_work_here(tmp_path: Path):
    assert schema.locks_work(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_thread_can_sync_during_commits_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "PAGES_BETWEEN_CHECKPOINTS", 10)
    journal = Journal.create(tmp_path / "registry.sqlite")
    done = threading.Event()
    failures: list[JournalError] = []

    def sync() -> None:
        while not done.is_set():
            try:
                journal.sync()
            except JournalError as error:
                failures.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for seq in range(1, 300):
        one = job(seq)
        journal.record(Added([one]))
        journal.commit()
        journal.record(ended(run(one)))
        journal.commit()
    done.set()
    thread.join()
    journal.close()
    assert failures == []
    journal = Journal.open(tmp_path / "registry.sqlite")
    assert len(list(journal.load().final)) == 299
    journal.close()


def test_a_failed_sync_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = Journal.create(tmp_path / "registry.sqlite")
    monkeypatch.setattr(os, "fdatasync", fail_with_io_error)
    with pytest.raises(JournalError, match=r"could not be synced to disk: Input/output error\."):
        journal.sync()
    journal.close()


def fail_with_io_error(descriptor: int) -> None:
    raise OSError(5, "Input/output error")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system small enough to fill")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Use up all free space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 65536
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return filler


def test_nothing_is_lost_on_a_full_disk(tiny_disk: Path):
    journal = Journal.create(tiny_disk / "registry.sqlite")
    jobs = [job(seq) for seq in range(1, 500)]
    journal.record(Added(jobs[:10]))
    journal.commit()
    filler = fill(tiny_disk)
    journal.record(Added(jobs[10:]))
    for _ in range(2):
        with pytest.raises(JournalError, match=r"written: database or disk is full\. Nothing is lost yet"):
            journal.commit()
    for one in jobs:
        start = run(one)
        journal.record(scheduled(start))
        journal.record(ended(start))
    record = journal.job_record(1)
    assert record is not None
    assert record.state is State.SUCCEED
    with pytest.raises(JournalError, match="database or disk is full"):
        journal.commit()
    filler.unlink()
    journal.close()
    journal = Journal.open(journal.path)
    assert len(list(journal.load().final)) == 499
    journal.close()


def test_a_disk_that_stays_full_costs_no_memory_for_each_try(tiny_disk: Path):
    journal = Journal.create(tiny_disk / "registry.sqlite")
    filler = fill(tiny_disk)
    journal.record(Added([job(seq) for seq in range(1, 500)]))
    for size in range(5):
        journal.set_metadata(REPORT_SIZE, size)
        with pytest.raises(JournalError, match="database or disk is full"):
            journal.commit()
    assert journal._waiting == []
    filler.unlink()
    journal.commit()
    assert journal.metadata(REPORT_SIZE) == 4
    assert len(list(journal.load().unfinished)) == 499
    journal.close()


def test_a_submission_that_did_not_fit_on_the_disk_can_be_withdrawn(tiny_disk: Path):
    journal = Journal.create(tiny_disk / "registry.sqlite")
    first, large = job(1), job(2)
    large.spec = bytes(10_000_000)
    journal.record(Added([first]))
    journal.record(Added([large]))
    with pytest.raises(JournalError, match="database or disk is full"):
        journal.commit()
    journal.record(Removed(large))
    journal.commit()
    assert [one.seq for one in journal.load().unfinished] == [1]
    journal.close()


def test_a_registry_that_does_not_fit_on_the_disk_leaves_no_files(tiny_disk: Path):
    filler = fill(tiny_disk)
    path = tiny_disk / "registry.sqlite"
    with pytest.raises(JournalError, match="could not be opened: "):
        Journal.create(path)
    assert [file.name for file in tiny_disk.iterdir()] == ["filler"]
    filler.unlink()
    Journal.create(path).close()


def test_one_of_two_managers_that_open_a_registry_at_the_same_moment_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schema, "SECONDS_TO_WAIT_FOR_A_LOCK", 0.05)
    path = tmp_path / "registry.sqlite"
    Journal.create(path).close()
    both = threading.Barrier(2)

    def is_opened() -> bool:
        both.wait(60)
        try:
            connection = schema.connect(path)
        except RegistryInUseError:
            both.wait(60)
            return False
        both.wait(60)  # it is kept open until the other one has given up
        connection.close()
        return True

    for _ in range(10):
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(lambda _: is_opened(), range(2))) == [False, True]
