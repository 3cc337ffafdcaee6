"""A registry can be read at any time without changing it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qcg.pilotjob.core.effects import Added
from qcg.pilotjob.journal import queries
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import INSTANCE
from qcg.pilotjob.journal.snapshot import snapshot
from tests.journal.samples import ended, job, run
from tests.journal.test_crashes import WRITER, start_child


def content(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def filled(path: Path) -> Journal:
    journal = Journal.create(path)
    one = job(1)
    journal.record(Added([one, job(2)]))
    journal.record(ended(run(one)))
    journal.set_metadata(INSTANCE, "value")
    journal.commit()
    return journal


def check(path: Path) -> None:
    with snapshot(path) as connection:
        assert [one.name for one in queries.job_records(connection)] == ["job1", "job2"]
        assert [one.seq for one in queries.attempt_records(connection)] == [1]
        assert INSTANCE.read(connection) == "value"


def test_a_closed_registry_is_read_in_place(tmp_path: Path):
    path = tmp_path / "registry.sqlite"
    filled(path).close()
    before = content(tmp_path)
    tmp_path.chmod(0o500)
    check(path)
    tmp_path.chmod(0o700)
    assert content(tmp_path) == before


def test_the_registry_of_a_crashed_run_is_read_without_changing_it(tmp_path: Path):
    journal = filled(tmp_path / "registry.sqlite")
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path, crashed)
    journal.close()
    before = content(crashed)
    assert set(before) == {"registry.sqlite", "registry.sqlite-wal"}
    check(crashed / "registry.sqlite")
    assert content(crashed) == before
    journal = Journal.open(crashed / "registry.sqlite")
    assert journal.load().max_seq == 2
    journal.close()


def test_the_registry_of_a_live_manager_is_consistent_whenever_it_is_read(tmp_path: Path):
    path = tmp_path / "registry.sqlite"
    # With pauses between commits, so that a reader that shares the core can finish.
    with start_child(WRITER, path, 100) as child:
        assert child.stdout is not None
        child.stdout.readline()
        last = 0
        for _ in range(30):
            with snapshot(path) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                names = [one.name for one in queries.job_records(connection)]
            assert names == [f"job{seq}" for seq in range(1, len(names) + 1)]
            assert len(names) >= last
            last = len(names)
            for _ in range(20):
                child.stdout.readline()
        child.kill()
    assert last > 100


@pytest.mark.parametrize(
    ("text", "message"), [(None, "There is no registry at"), (b"", "never completely"), (b"x" * 9000, "not a database")]
)
def test_a_snapshot_of_a_file_that_is_no_registry_raises_an_error(tmp_path: Path, text: bytes | None, message: str):
    path = tmp_path / "registry.sqlite"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(JournalError, match=message), snapshot(path):
        pass
