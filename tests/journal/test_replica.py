"""A replica shows a registry while its manager writes, after it has ended, and after it was resumed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from qcg.pilotjob.core.effects import Added
from qcg.pilotjob.journal import queries, replica, wal_copy
from qcg.pilotjob.journal.damage import unreadable_of
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.replica import RegistryReplica
from qcg.pilotjob.journal.replica_directory import PREFIX
from qcg.pilotjob.journal.schema import PAGES_BETWEEN_CHECKPOINTS
from tests.journal.samples import ended, job, run
from tests.journal.test_crashes import WRITER, start_child
from tests.support.large_registry import Shape, write_registry
from tests.support.pilot import job as described
from tests.support.pilot import start, write_requests
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of this test alone."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


def add(journal: Journal, *numbers: int) -> None:
    for seq in numbers:
        one = job(seq)
        journal.record(Added([one]))
        journal.record(ended(run(one)))
    journal.commit()


def names(connection: sqlite3.Connection) -> list[str]:
    return [one.name for one in queries.job_records(connection)]


def shown(copy: RegistryReplica) -> list[str]:
    """The jobs after a refresh; every page of the copy is consistent."""
    with closing(copy.refresh(now=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return names(connection)


def expected(count: int) -> list[str]:
    return [f"job{seq}" for seq in range(1, count + 1)]


def test_a_refresh_shows_every_commit_and_copies_only_new_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wal_copy, "SETTLE_SECONDS", 0.0)
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, *range(1, 2001))
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        assert shown(copy) == expected(2000)
        first = copy.bytes_copied
        assert first > 100_000
        for count in range(2001, 2101):
            add(journal, count)
            assert shown(copy) == expected(count)
        # A commit of one job changes a few pages of 4 KiB.
        assert 0 < copy.bytes_copied - first < 100 * 10 * 4120
        assert copy.version == 101
    journal.close()


def test_frames_that_may_be_incomplete_are_copied_again_until_they_are_old(tmp_path: Path):
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, 1, 2, 3)
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        shown(copy)
        before = copy.bytes_copied
        shown(copy)
        wal = (tmp_path / f"{FILE_NAME}-wal").stat().st_size
        assert copy.bytes_copied - before == wal - 32
        assert copy.version == 1
    journal.close()


def test_a_frame_that_was_incomplete_when_it_was_copied_is_shown_later(tmp_path: Path):
    """As on network file systems, which may show a frame before the previous one."""
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, 1)
    other = tmp_path / "other"
    other.mkdir()
    wal = Path(f"{tmp_path / FILE_NAME}-wal")
    with closing(journal):
        shutil.copy(tmp_path / FILE_NAME, other)
        known = wal.stat().st_size
        add(journal, 2)
        whole = wal.read_bytes()
        torn = bytearray(whole)
        torn[known + 100 : known + 200] = b"\xff" * 100
        torn_wal = other / wal.name
        torn_wal.write_bytes(torn)
        with RegistryReplica(other / FILE_NAME) as copy:
            assert shown(copy) == ["job1"]
            torn_wal.write_bytes(whole)
            assert shown(copy) == ["job1", "job2"]


def test_open_connections_keep_their_content(tmp_path: Path):
    journal = Journal.create(tmp_path / FILE_NAME)
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        connections = []
        for count in range(1, 6):
            add(journal, count)
            connections.append(copy.refresh(now=True))
        journal.close()
        last = copy.refresh(now=True)
        for count, connection in enumerate(connections, 1):
            assert names(connection) == expected(count)
            connection.close()
        assert names(last) == expected(5)
    assert names(last) == expected(5)
    last.close()


def test_connections_cannot_write(tmp_path: Path):
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, 1)
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        for _ in range(2):  # with a WAL, and without
            with closing(copy.refresh(now=True)) as connection, pytest.raises(sqlite3.OperationalError):
                connection.execute("DELETE FROM runs")
            journal.close()


def test_a_replica_follows_a_manager_that_ends_and_one_that_resumes(tmp_path: Path):
    path = tmp_path / FILE_NAME
    journal = Journal.create(path)
    add(journal, 1)
    with RegistryReplica(path) as copy:
        assert shown(copy) == expected(1)
        journal.close()
        assert not Path(f"{path}-wal").exists()
        assert shown(copy) == expected(1)
        version, copied = copy.version, copy.bytes_copied
        assert shown(copy) == expected(1)
        assert (copy.version, copy.bytes_copied) == (version, copied)
        journal = Journal.open(path)
        add(journal, 2)
        assert shown(copy) == expected(2)
        journal.close()
        journal = Journal.open(path)
        add(journal, 3)
        journal.close()
        assert shown(copy) == expected(3)


def test_managers_that_crash_are_followed_by_others_that_resume(tmp_path: Path):
    path = tmp_path / FILE_NAME
    Journal.create(path).close()
    last = 0
    with RegistryReplica(path) as copy:
        for _ in range(6):
            with start_child(WRITER, path, 20) as child:
                assert child.stdout is not None
                child.stdout.readline()
                resumed = shown(copy)
                assert resumed == expected(len(resumed))
                assert len(resumed) > last
                for _ in range(30):
                    _, promised = child.stdout.readline().split()
                child.kill()
            crashed = shown(copy)
            assert crashed == expected(len(crashed))
            assert len(crashed) >= int(promised)
            last = len(crashed)


@pytest.mark.sampled
@pytest.mark.parametrize("registry", range(per_tier(1, 10)))  # the names in it are compared again and again
def test_a_replica_is_consistent_while_a_manager_writes_at_full_speed(registry: int, tmp_path: Path):
    """The WAL restarts several times between two refreshes, and while files are copied."""
    path = tmp_path / FILE_NAME
    with start_child(WRITER, path, 100) as child:
        assert child.stdout is not None
        child.stdout.readline()
        last = 0
        headers: set[bytes] = set()
        with RegistryReplica(path) as copy:
            deadline = time.monotonic() + 60
            while len(headers) < 30:
                assert time.monotonic() < deadline
                for _ in range(20):
                    promised = child.stdout.readline().split()
                found = shown(copy)
                assert found == expected(len(found))
                assert len(found) >= max(last, int(promised[1]))
                last = len(found)
                assert copy._copy is not None
                assert copy._copy.wal is not None
                headers.add(copy._copy.wal.header)
        child.kill()


def test_refreshes_take_a_twentieth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, 1)
    clock = iter([100.0, 101.0, 119.9, 120.1, 120.2])
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        monkeypatch.setattr(replica, "time", type("Clock", (), {"monotonic": staticmethod(lambda: next(clock))}))
        with closing(copy.refresh()) as connection:  # this refresh took a second
            assert names(connection) == expected(1)
        add(journal, 2)
        with closing(copy.refresh()) as connection:
            assert names(connection) == expected(1)
        with closing(copy.refresh()) as connection:
            assert names(connection) == expected(2)
    journal.close()


COMMITS_PER_READ = 15


def test_threads_share_a_replica(tmp_path: Path):
    journal = Journal.create(tmp_path / FILE_NAME)
    found: list[int] = []

    def read(copy: RegistryReplica) -> None:
        for _ in range(20):
            with closing(copy.refresh(now=True)) as connection:
                listed = names(connection)
                assert listed == expected(len(listed))
                found.append(len(listed))

    add(journal, 1)
    with RegistryReplica(tmp_path / FILE_NAME) as copy:
        threads = [threading.Thread(target=read, args=(copy,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        count = 1
        while any(thread.is_alive() for thread in threads):
            if count > COMMITS_PER_READ * (len(found) + 1):
                time.sleep(0.001)  # each read takes longer the more jobs there are
                continue
            count += 1
            add(journal, count)
        for thread in threads:
            thread.join()
    assert len(found) == 80
    journal.close()


@pytest.mark.parametrize("closed", [True, False])
def test_the_readable_part_of_a_damaged_registry_is_shown(tmp_path: Path, closed: bool):
    path = tmp_path / FILE_NAME
    journal = Journal.create(path)
    add(journal, 1, 2)
    journal._connection.execute("UPDATE runs SET state = 'damaged' WHERE place = 1 << 32")
    with RegistryReplica(path) as copy:
        if closed:
            journal.close()
        for _ in range(2):
            with closing(copy.refresh(now=True)) as connection:
                assert names(connection) == expected(2)
                assert [one.seq for one in queries.attempt_records(connection)] == [2]
                assert unreadable_of(connection) == ["attempt of job 1: state"]
    journal.close()


def test_the_check_for_damage_can_be_deferred(tmp_path: Path):
    path = tmp_path / FILE_NAME
    journal = Journal.create(path)
    add(journal, 1, 2)
    journal._connection.execute("UPDATE runs SET state = 'damaged' WHERE place = 1 << 32")
    journal.close()
    with RegistryReplica(path, whole=False) as copy:
        with closing(copy.connect()) as connection:
            assert unreadable_of(connection) == []
        assert copy.find_damage()
        with closing(copy.connect()) as connection:
            assert unreadable_of(connection) == ["attempt of job 1: state"]


def test_a_file_that_is_no_registry_of_this_user_is_refused(tmp_path: Path, temporary: Path):
    path = tmp_path / FILE_NAME
    with pytest.raises(JournalError, match="There is no registry at"):
        RegistryReplica(path)
    path.write_bytes(b"x" * 9000)
    with RegistryReplica(path) as copy, pytest.raises(JournalError, match="holds no registry"):
        copy.refresh()
    path.chmod(0o666)
    with pytest.raises(JournalError, match="other users can write to it"):
        RegistryReplica(path)
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(JournalError, match="it is a symbolic link"):
        RegistryReplica(path)
    assert list(temporary.iterdir()) == []


def test_a_registry_that_is_removed_is_reported_in_one_sentence(tmp_path: Path):
    path = tmp_path / FILE_NAME
    journal = Journal.create(path)
    add(journal, 1)
    journal.close()
    with RegistryReplica(path) as copy:
        shown(copy)
        path.unlink()
        with pytest.raises(JournalError, match="There is no registry at"):
            copy.refresh(now=True)
        with closing(copy.connect()) as connection:
            assert names(connection) == expected(1)


DISPLAY = """
import signal, sys
from pathlib import Path
from qcg.pilotjob.cli.signals import exit_on_signals
from qcg.pilotjob.journal.replica import RegistryReplica

if sys.argv[2] == "handled":
    exit_on_signals()
copy = RegistryReplica(Path(sys.argv[1]))
connection = copy.refresh()
print("shown", flush=True)
signal.pause()
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Path]:
    journal = Journal.create(tmp_path / FILE_NAME)
    add(journal, 1)
    yield tmp_path / FILE_NAME
    journal.close()


def display(registry: Path, how: str) -> subprocess.Popen[str]:
    child = start_child(DISPLAY, registry, how)
    assert child.stdout is not None
    assert child.stdout.readline() == "shown\n"
    return child


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGTERM, "handled"), (signal.SIGHUP, "handled"), (signal.SIGINT, "handled")]
)
def test_signals_leave_no_files_behind(registry: Path, temporary: Path, number: signal.Signals, how: str):
    with display(registry, how) as child:
        (directory,) = temporary.iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700
        child.send_signal(number)
    assert child.returncode == 128 + number
    assert list(temporary.iterdir()) == []


def test_ctrl_c_leaves_no_files_behind(registry: Path, temporary: Path, capfd: pytest.CaptureFixture[str]):
    with display(registry, "not handled") as child:
        child.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in capfd.readouterr().err
    assert list(temporary.iterdir()) == []


def test_files_of_a_killed_process_are_removed_by_the_next_one(registry: Path, temporary: Path):
    with display(registry, "handled") as child, display(registry, "handled") as other:
        assert len(list(temporary.iterdir())) == 2
        child.kill()
        child.wait()
        with RegistryReplica(registry):
            assert len(list(temporary.iterdir())) == 2  # the directory of the other process, and of this one
        other.terminate()
    assert list(temporary.iterdir()) == []


def test_directories_of_other_users_and_forks_are_left_alone(registry: Path, temporary: Path):
    strange = temporary / f"{PREFIX}strange"
    strange.mkdir(mode=0o777)
    strange.chmod(0o777)
    (strange / "lock").touch()
    with RegistryReplica(registry) as copy:
        assert strange.exists()
        child = os.fork()
        if child == 0:
            copy.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert shown(copy) == expected(1)


@pytest.mark.sampled
@pytest.mark.timeout(120)
def test_a_replica_follows_a_real_manager(tmp_path: Path):
    """A manager with thousands of short jobs: each refresh shows what was committed before, and the end is complete."""
    iterations = per_tier(3000, 30000)
    requests = write_requests(
        tmp_path / "requests.json", [described("it", "true", iteration={"stop": iterations}), described("last", "true")]
    )
    manager = start("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "2")
    try:
        path = wait_for(lambda: _complete_registry(tmp_path), what="a complete registry")
        assert path is not None
        counts = [0]
        with RegistryReplica(path) as copy:
            while manager.poll() is None:
                with closing(copy.refresh(now=True)) as connection:
                    count, known = connection.execute("SELECT count(*), count(DISTINCT place) FROM runs").fetchone()
                    assert count == known >= counts[-1]
                    counts.append(count)
            with closing(copy.refresh(now=True)) as connection:
                assert connection.execute("SELECT count(*) FROM runs WHERE state = 3").fetchone() == (iterations + 1,)
        assert len(set(counts)) > 3
    finally:
        manager.communicate()
    assert manager.returncode == 0


def _complete_registry(wd: Path) -> Path | None:
    """None until the manager has created its tables."""
    for path in wd.glob(f".qcgpjm-service-*/{FILE_NAME}"):
        with suppress(JournalError), RegistryReplica(path) as copy:
            copy.refresh().close()
            return path
    return None


@pytest.mark.sampled
def test_a_registry_with_a_million_attempts_is_copied_and_refreshed_quickly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / FILE_NAME
    attempts = per_tier(100_000, 1_000_000)
    write_registry(path, Shape(attempts))
    journal = Journal.open(path)
    add(journal, attempts + 10)
    with RegistryReplica(path, whole=False) as copy:
        first = _seconds(copy)
        assert copy.bytes_copied > path.stat().st_size * 0.9
        for number in range(200):
            add(journal, *range(attempts + 1000 + number * 20, attempts + 1020 + number * 20))
        wal = Path(f"{path}-wal").stat().st_size
        assert wal < PAGES_BETWEEN_CHECKPOINTS * 4096
        later = _seconds(copy)
    with capsys.disabled():
        print(f" [{attempts} attempts: first {first:.3f} s, then {later:.3f} s] ", end="")
    assert first < 5.0
    assert later < 0.5
    journal.close()


def _seconds(copy: RegistryReplica) -> float:
    began = time.monotonic()
    copy.refresh(now=True).close()
    return time.monotonic() - began
