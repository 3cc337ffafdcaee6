"""The registry returns what was recorded: to a manager that resumes, and to queries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.core.effects import (
    Added,
    AllDone,
    Effect,
    Held,
    IterationsFinal,
    Kill,
    Launch,
    QueuedIterationsFinal,
    Released,
    Removed,
    Reply,
    Requeued,
    Reran,
    Stop,
)
from qcg.pilotjob.core.iterations import Iterations
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart, PastAttempt
from qcg.pilotjob.core.restore import (
    EndedIteration,
    EndedIterations,
    FinalJob,
    HeldPosition,
    OpenAttempt,
    PastAttempts,
    RequeuedAttempt,
    UnfinishedJob,
)
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal import commit_group, metadata
from qcg.pilotjob.journal.aggregates import used
from qcg.pilotjob.journal.encoding import decode_grant, encode_grant
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import DamagedMetadata, MetadataKey, NodeSize
from qcg.pilotjob.journal.records import AttemptRecord
from qcg.pilotjob.journal.registry_reader import RegistryReader
from qcg.pilotjob.journal.schema import FORMAT, USAGE, earlier_tables, tables_of
from qcg.pilotjob.journal.snapshot import snapshot
from tests.journal.samples import GRANT, begun, description, ended, executing, job, run, scheduled, settled, spec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal.create(path)
    yield journal
    journal.close()


def reopened(journal: Journal) -> Journal:
    """The journal, closed and opened again; it replaces the entry in `journal`, which the fixture closes."""
    journal.close()
    journal.__dict__.update(Journal.open(journal.path).__dict__)
    return journal


def test_only_its_owner_can_read_the_registry(journal: Journal, path: Path):
    journal.record(Added([job(1)]))
    journal.commit()
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "registry.sqlite": 0o600,
        "registry.sqlite-wal": 0o600,
    }


def test_a_closed_registry_is_one_file(path: Path):
    Journal.create(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["registry.sqlite"]


def test_a_registry_is_never_created_over_another(journal: Journal, path: Path):
    with pytest.raises(JournalError, match=r"a registry at .* already"):
        Journal.create(path)


def test_opening_a_missing_registry_raises_an_error(tmp_path: Path):
    with pytest.raises(JournalError, match="There is no registry at"):
        Journal.open(tmp_path / "registry.sqlite")


def test_a_registry_in_a_missing_directory_cannot_be_created(tmp_path: Path):
    with pytest.raises(JournalError, match=r"could not be created: No such file or directory\."):
        Journal.create(tmp_path / "missing" / "registry.sqlite")


def test_opening_a_file_that_is_no_registry_raises_an_error(path: Path):
    path.write_text("something else altogether, long enough to have a header" * 100)
    with pytest.raises(JournalError, match=r"could not be opened: file is not a database\."):
        Journal.open(path)


def test_opening_an_incomplete_registry_raises_an_error(path: Path):
    path.touch()
    with pytest.raises(JournalError, match="never completely created"):
        Journal.open(path)


def test_opening_a_registry_of_another_format_raises_an_error(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal.close()
    monkeypatch.setattr("qcg.pilotjob.journal.schema.FORMAT", FORMAT + 1)
    with pytest.raises(JournalError, match=f"has format {FORMAT}, this program reads format {FORMAT + 1}"):
        Journal.open(path)
    monkeypatch.undo()
    journal.__dict__.update(Journal.open(path).__dict__)


def test_every_manager_has_its_own_epoch(journal: Journal):
    assert [journal.epoch, reopened(journal).epoch, reopened(journal).epoch] == [1, 2, 3]


@pytest.mark.parametrize("grant", [GRANT, Grant((NodePart("ü", ()),)), Grant(())])
def test_a_grant_is_decoded_as_it_was_encoded(grant: Grant):
    assert decode_grant(encode_grant(grant)) == grant


def test_a_queued_job_is_loaded_with_its_description(journal: Journal):
    quoted = "with ' quotes ü"
    journal.record(Added([job(1), job(2, quoted)]))
    loaded = reopened(journal).load()
    assert list(loaded.unfinished) == [
        UnfinishedJob(1, "job1", 101.0, spec(1), description(1)),
        UnfinishedJob(2, quoted, 102.0, spec(2, quoted), description(2, quoted)),
    ]
    assert loaded.max_seq == 2
    assert [*loaded.final, *loaded.ended_iterations, *loaded.open_attempts, *loaded.requeued] == []


@pytest.mark.parametrize("commits", [False, True], ids=["in one group", "in groups of their own"])
def test_an_attempt_is_complete_however_its_changes_are_grouped(journal: Journal, commits: bool):
    one = job(1)
    start = run(one)
    for effect in (Added([one]), scheduled(start), executing(start), ended(start, State.FAILED, 3, "exit code 3")):
        journal.record(effect)
        if commits:
            journal.commit()
    reopened(journal)
    assert list(journal.load().final) == [FinalJob(1, "job1", State.FAILED, 101.0, "exit code 3")]
    record = journal.job_record(1)
    assert record is not None
    assert (record.state, record.ended, record.message) == (State.FAILED, 202.0, "exit code 3")
    assert list(journal.attempts_of(1)) == [
        AttemptRecord(1, -1, 1, State.FAILED, 200.0, 201.0, 202.0, 4711, 3, GRANT, False, "exit code 3")
    ]
    assert journal.spec_of(1) == spec(1)


@pytest.mark.parametrize("commits", [False, True], ids=["in one group", "in groups of their own"])
def test_open_attempts_are_loaded_with_their_last_known_state(journal: Journal, commits: bool):
    jobs = [job(seq) for seq in (1, 2, 3, 4)]
    runs = [run(one) for one in jobs]
    killed, stopped = runs[2:]
    killed.kill_requested = True
    stopped.stop_requested = True
    effects: list[Effect] = [Added(jobs), *map(scheduled, runs), executing(runs[1]), Kill(killed)]
    effects.append(Stop(stopped, "closed", "the time is over"))
    for effect in effects:
        journal.record(effect)
        if commits:
            journal.commit()
    loaded = reopened(journal).load()
    assert loaded.open_attempts == [
        OpenAttempt(1, -1, 1, GRANT, 200.0),
        OpenAttempt(2, -1, 1, GRANT, 200.0, started=201.0, pid=4711),
        OpenAttempt(3, -1, 1, GRANT, 200.0, kill_requested=True),
        OpenAttempt(4, -1, 1, GRANT, 200.0, stop_requested=True),
    ]
    states = [State.SCHEDULED, State.EXECUTING, State.SCHEDULED, State.SCHEDULED]
    assert [one.state for seq in (1, 2, 3, 4) for one in journal.attempts_of(seq)] == states
    assert [one.seq for one in loaded.unfinished] == [1, 2, 3, 4]


def test_a_job_that_ended_in_the_queue_is_final_without_an_attempt(journal: Journal):
    one = job(1)
    journal.record(Added([one]))
    journal.record(settled(one, -1, State.OMITTED, "it waits for 'a', which is FAILED"))
    reopened(journal)
    assert list(journal.load().final) == [
        FinalJob(1, "job1", State.OMITTED, 101.0, "it waits for 'a', which is FAILED")
    ]
    assert list(journal.attempts_of(1)) == []


def test_iterations_of_an_unfinished_job_are_loaded_one_by_one(journal: Journal):
    one = job(1, indices=range(10, 20, 2))
    runs = [run(one, position) for position in range(4)]
    journal.record(Added([one]))
    journal.record(executing(runs[0]))
    journal.record(begun(one))
    journal.record(ended(runs[0]))
    journal.record(ended(runs[1], State.FAILED, -11, "ended by signal 11"))
    journal.record(scheduled(runs[2]))
    journal.record(settled(one, 3, State.CANCELED))
    one.message = "it waits for 'a', which is FAILED"
    journal.record(QueuedIterationsFinal(one, State.OMITTED, 300.0))
    loaded = reopened(journal).load()
    assert list(loaded.ended_iterations) == [
        EndedIteration(1, 0, State.SUCCEED),
        EndedIteration(1, 1, State.FAILED),
        EndedIteration(1, 3, State.CANCELED),
    ]
    assert loaded.open_attempts == [OpenAttempt(1, 2, 1, GRANT, 200.0)]
    described = description(1, indices=range(10, 20, 2))
    assert list(loaded.unfinished) == [
        UnfinishedJob(1, "job1", 101.0, msgspec.msgpack.encode(described), described, 201.0, State.OMITTED)
    ]
    assert [(one.position, one.attempt, one.state) for one in journal.attempts_of(1)] == [
        (0, 1, State.SUCCEED),
        (1, 1, State.FAILED),
        (2, 1, State.SCHEDULED),
        (3, 0, State.CANCELED),
    ]
    assert list(journal.iteration_states(1)) == [
        (0, State.SUCCEED),
        (1, State.FAILED),
        (2, State.SCHEDULED),
        (3, State.CANCELED),
    ]
    assert [one.exit_code for one in journal.attempts_of(1, [1, 0, 77])] == [-11, 0]
    record = journal.job_record(1)
    assert record is not None
    assert record.iterations == 5
    assert (record.rest, record.rest_at, record.message) == (State.OMITTED, 300.0, one.message)


def test_iterations_that_end_together_are_loaded_one_by_one(journal: Journal):
    one = job(1, indices=range(10, 20, 2))
    journal.record(Added([one]))
    journal.record(IterationsFinal(one, bytes([0, 1, 0, 1, 1]), State.OMITTED, 300.0, "it waits in vain"))
    assert list(reopened(journal).load().ended_iterations) == [
        EndedIteration(1, position, State.OMITTED) for position in (1, 3, 4)
    ]
    assert [(end.position, end.attempt, end.ended, end.message) for end in journal.attempts_of(1)] == [
        (position, 0, 300.0, "it waits in vain") for position in (1, 3, 4)
    ]


def test_iterations_of_a_succeeded_job_are_not_loaded_but_can_be_queried(journal: Journal):
    one, other = job(1, indices=range(3)), job(2)
    journal.record(Added([one, other]))
    for position in range(3):
        journal.record(ended(run(one, position)))
    journal.record(settled(one, -1, State.SUCCEED))
    loaded = reopened(journal).load()
    iterations = EndedIterations(range(3), State.SUCCEED)
    assert list(loaded.final) == [FinalJob(1, "job1", State.SUCCEED, 101.0, "", iterations)]
    assert list(loaded.ended_iterations) == []
    assert len(list(journal.attempts_of(1))) == 3
    assert list(journal.attempts_of(2)) == []


def test_the_number_of_a_requeued_attempt_is_not_used_again(journal: Journal):
    jobs = [job(1), job(2, indices=range(9))]
    first, second = run(jobs[0]), run(jobs[1], 5)
    for effect in (Added(jobs), scheduled(first), executing(second), Requeued(first), Requeued(second)):
        journal.record(effect)
    loaded = reopened(journal).load()
    assert loaded.requeued == [RequeuedAttempt(1, -1, 1), RequeuedAttempt(2, 5, 1)]
    assert list(journal.interrupted()) == [(2, 5)], "the attempt of the other job had not started"
    assert loaded.open_attempts == []
    assert list(journal.attempts_of(1)) == []


def test_earlier_attempts_are_kept_with_their_causes_and_counted(journal: Journal):
    one = job(1)
    lost = PastAttempt("lost", 5.0, None, "the node is gone")
    failed = PastAttempt("exit", 6.0, 3, "exit code 3", 77.0, counted=True)
    first, second, third = run(one), run(one, attempt=2), run(one, attempt=3)
    for effect in (Added([one]), executing(first), Requeued(first, lost), executing(second), Requeued(second, failed)):
        journal.record(effect)
    loaded = reopened(journal).load()
    assert loaded.past == [PastAttempts(1, -1, 2, {"exit": 1}, 77.0)]
    journal.record(ended(third))
    earlier = journal.past_attempts_of(1, -1)
    assert [(past.attempt, past.cause, past.exit_code, past.message) for past in earlier] == [
        (1, "lost", None, "the node is gone"),
        (2, "exit", 3, "exit code 3"),
    ]
    assert earlier[0].grant == GRANT
    assert journal.load().past == [], "of jobs that are not final"
    journal.record(Removed(one))
    assert journal.past_attempts_of(1, -1) == []


def test_holds_are_stored_until_they_are_released(journal: Journal):
    jobs = [job(1), job(2, indices=range(9)), job(3, indices=range(9))]
    for effect in (
        Added(jobs),
        Held(jobs[0], -1, 5.0),
        Held(jobs[1], 3, 6.0),
        Held(jobs[1], 4, 7.0),
        Released(jobs[1], 3),
        Held(jobs[2], -1, 8.0),
        Released(jobs[2], 2, within=True),
    ):
        journal.record(effect)
    held = [HeldPosition(1, -1, 5.0), HeldPosition(2, 4, 7.0), HeldPosition(3, -1, 8.0), HeldPosition(3, 2, 0.0)]
    assert reopened(journal).load().held == held
    for effect in (Released(jobs[0], -1), Released(jobs[2], -1)):
        journal.record(effect)
    assert journal.load().held == held[1:2]
    journal.record(Removed(jobs[1]))
    assert list(journal.holds()) == []


def test_a_registry_of_the_format_before_gets_the_table_for_earlier_attempts(journal: Journal, path: Path):
    journal.record(Added([job(1)]))
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE past_attempts; DROP TABLE holds; PRAGMA user_version=4;")
    with snapshot(path) as connection:
        assert RegistryReader(connection).past_attempts_of(1, -1) == []
        assert list(RegistryReader(connection).holds()) == []
    journal.__dict__.update(Journal.open(path).__dict__)
    assert journal.past_attempts_of(1, -1) == []
    assert journal.load().past == []
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    journal.__dict__.update(Journal.open(path).__dict__)


def test_the_usage_of_attempts_is_stored(journal: Journal):
    one = job(1)
    first, second = run(one), run(one, attempt=2)
    first.usage, second.usage = Usage(1, 2, 3, 4, 5, 6, 7), Usage(1_000_000, 2_000_000, 1 << 30, 40, 50, 1 << 45, 70)
    failed = PastAttempt("exit", 6.0, 3, "exit code 3", counted=True)
    for effect in (Added([one]), executing(first), Requeued(first, failed), executing(second), ended(second)):
        journal.record(effect)
    stored = reopened(journal)
    assert [past.usage for past in stored.past_attempts_of(1, -1)] == [first.usage]
    assert [attempt.usage for attempt in stored.attempts_of(1)] == [second.usage]


def test_a_registry_without_usage_is_read_and_gets_the_columns(journal: Journal, path: Path):
    one = job(1)
    for effect in (Added([one]), executing(run(one)), ended(run(one))):
        journal.record(effect)
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        created = tables_of(connection)
        rows = list(connection.iterdump())
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(earlier_tables()[-1])
        for line in rows:
            if line.startswith('INSERT INTO "submitted_jobs"'):
                connection.execute(line)
            elif line.startswith('INSERT INTO "runs"'):
                connection.execute(line.replace(",0" * len(USAGE) + ");", ");"))
        connection.execute("PRAGMA user_version=5")
        connection.commit()
    with snapshot(path) as connection:
        assert [attempt.usage for attempt in RegistryReader(connection).attempts_of(1)] == [None]
        assert list(used(connection)) == []
    with snapshot(path, foreign=True) as connection:
        assert RegistryReader(connection).job_record(1) is not None
    journal.__dict__.update(Journal.open(path).__dict__)
    assert [attempt.usage for attempt in journal.attempts_of(1)] == [None]
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert tables_of(connection) == created, "other users read a registry only with exactly these tables"
    journal.__dict__.update(Journal.open(path).__dict__)


def test_a_registry_without_the_times_of_reruns_is_read_and_gets_the_column(journal: Journal, path: Path):
    one = job(1)
    for effect in (Added([one]), ended(run(one), State.FAILED), Reran(one, (-1,), (), True, False, 210.0)):
        journal.record(effect)
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        created = tables_of(connection)
    later = path.rename(path.with_name("later"))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{earlier_tables()[0]} PRAGMA user_version={FORMAT};")
        connection.execute("ATTACH ? AS later", (str(later),))
        for table in ("submitted_jobs", "runs", "past_attempts"):
            columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO main.{table} SELECT {columns} FROM later.{table}")
        connection.commit()
    with snapshot(path, foreign=True) as connection:
        assert [past.rerun_at for past in RegistryReader(connection).past_attempts_of(1, -1)] == [None]
    journal.__dict__.update(Journal.open(path).__dict__)
    for effect in (ended(run(one, attempt=2), State.FAILED), Reran(one, (-1,), (), True, False, 310.0)):
        journal.record(effect)
    assert [past.rerun_at for past in journal.past_attempts_of(1, -1)] == [None, 310.0]
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert tables_of(connection) == created, "other users read a registry only with exactly these tables"
    journal.__dict__.update(Journal.open(path).__dict__)


@pytest.mark.parametrize("commits", [False, True], ids=["in one group", "in groups of their own"])
def test_the_next_attempt_replaces_a_requeued_one(journal: Journal, commits: bool):
    one = job(1)
    first, second = run(one), run(one, attempt=2)
    for effect in (Added([one]), scheduled(first), Requeued(first), scheduled(second), ended(second)):
        journal.record(effect)
        if commits:
            journal.commit()
    assert [(one.attempt, one.state) for one in reopened(journal).attempts_of(1)] == [(2, State.SUCCEED)]


def test_a_removed_job_leaves_only_its_sequence_number(journal: Journal):
    jobs = [job(seq, indices=range(1)) for seq in (1, 2, 3)]
    journal.record(Added(jobs))
    for one in jobs:
        journal.record(ended(run(one, 0)))
        journal.set_command(run(one, 0), f"mpirun {one.seq}")
        journal.record(settled(one, -1, State.SUCCEED))
    journal.commit()
    journal.record(Removed(jobs[2]))
    journal.record(Removed(jobs[1]))
    loaded = reopened(journal).load()
    assert [one.seq for one in loaded.final] == [1]
    assert loaded.max_seq == 3
    assert journal.job_record(3) is None
    assert journal.spec_of(3) is None
    assert list(journal.attempts_of(3)) == list(journal.attempts_of(2)) == []
    assert len(list(journal.attempts_of(1))) == 1
    assert [journal.command_of(seq, 0) for seq in (1, 2, 3)] == ["mpirun 1", None, None]


def test_a_job_added_and_removed_in_one_group_leaves_nothing(journal: Journal):
    one = job(1)
    for effect in (Added([one]), ended(run(one)), Removed(one)):
        journal.record(effect)
    assert journal.job_record(1) is None
    assert list(journal.attempts_of(1)) == []
    assert journal.load().max_seq == 1


def test_a_name_is_free_again_after_removal(journal: Journal):
    first, second = job(1, "same"), job(2, "same")
    for effect in (Added([first]), settled(first, -1, State.CANCELED), Removed(first), Added([second])):
        journal.record(effect)
    assert [(one.seq, one.name) for one in reopened(journal).load().unfinished] == [(2, "same")]


def test_effects_that_do_not_change_the_registry_are_ignored(journal: Journal):
    for effect in (Launch(run(job(1))), AllDone(), Reply({})):
        journal.record(effect)
    assert journal.load().max_seq == 0


def test_the_last_acknowledged_record_of_each_agent_is_stored(journal: Journal):
    journal.set_acked("agent1", 5)
    journal.set_acked("agent2", 1)
    journal.commit()
    journal.set_acked("agent1", 9)
    assert reopened(journal).acked() == {"agent1": 9, "agent2": 1}


@pytest.mark.parametrize(
    ("key", "before", "value", "stored"),
    [
        (metadata.INSTANCE, "before", "text ü", "text ü"),
        (metadata.SUBMISSIONS, 11, 12, 12),
        (metadata.REPORT_SIZE, 0, -1, -1),
        (metadata.LONGEST_NODE_TIMEOUT, 1.0, 1.5, 1.5),
        (metadata.FINISH_REQUESTED, False, True, 1),
        (metadata.OPTIONS, None, Options(wd="/wd", wait=True), '{"wd":"/wd","wait":true}'),
        (
            metadata.OPTIONS,
            None,
            Options(first_node=1, end_node=3),
            '{"slurm_limit_nodes_range_begin":1,"slurm_limit_nodes_range_end":3}',
        ),
        (metadata.RESOURCES, [], [NodeSize(name="n1", cores=4)], '[{"name":"n1","cores":4}]'),
    ],
    ids=lambda value: value.name if isinstance(value, MetadataKey) else None,
)
def test_metadata_is_stored_and_read_again(journal: Journal, key: MetadataKey, before: Any, value: Any, stored: Any):
    assert journal.metadata(key) == key.default
    journal.set_metadata(key, before)
    journal.set_metadata(key, value)
    assert journal.metadata(key) == value
    again = reopened(journal)
    assert again.metadata(key) == value
    assert again._current().execute("SELECT value FROM meta WHERE key = ?", (key.name,)).fetchone() == (stored,)


@pytest.mark.parametrize("key", metadata.KEYS, ids=lambda key: key.name)
def test_the_default_of_every_metadata_key_is_valid_in_the_registry(key: MetadataKey):
    with closing(sqlite3.connect(":memory:")) as connection:
        query = f"SELECT {key.valid} FROM (SELECT ? AS value)"
        stored = "null" if key.default is None else key.encode(key.default)
        assert connection.execute(query, (stored,)).fetchone() == (1,)


def test_metadata_of_earlier_versions_is_read(journal: Journal):
    for key in (metadata.INSTANCE, metadata.FILE_DIGEST, metadata.NODES_OF_ALLOCATION):
        journal._current().execute(metadata.PUT_VALUE, (key.name, 0))
        assert journal.metadata(key) == ""


def test_a_registry_with_metadata_that_cannot_be_searched_is_refused(journal: Journal):
    journal.set_metadata(metadata.INSTANCE, "one")
    journal.set_metadata(metadata.SUBMISSIONS, 2)
    journal.commit()
    root, size = (
        journal._current().execute(f"SELECT {wanted}").fetchone()[0]
        for wanted in ("rootpage FROM sqlite_master WHERE name = 'meta'", "page_size FROM pragma_page_size")
    )
    journal.close()
    whole = journal.path.read_bytes()
    # The page begins with 8 bytes, after which come the places of the rows in the order of their keys, 2 bytes each.
    first = (root - 1) * size + 8
    # The second row stands in the place of the first one.
    journal.path.write_bytes(whole[:first] + whole[first + 2 : first + 4] + whole[first + 2 :])
    with pytest.raises(JournalError, match=r"damaged and cannot be continued: .* Not readable: pages of the metadata"):
        Journal.open(journal.path)


def test_damaged_metadata_raises_an_error(journal: Journal):
    journal._current().execute(metadata.PUT_VALUE, (metadata.OPTIONS.name, '{"wd": 1}'))
    with pytest.raises(DamagedMetadata, match=r"Expected `str`, got `int` - at `\$.wd`"):
        journal.metadata(metadata.OPTIONS)


def test_queries_see_uncommitted_changes_and_do_not_commit_them(journal: Journal, path: Path):
    journal.record(Added([job(1)]))
    journal.commit()
    committed = Path(f"{path}-wal").read_bytes()
    journal.record(Added([job(2)]))
    assert journal.job_record(2) is not None
    journal.record(Added([job(3)]))
    assert journal.job_record(3) is not None
    assert Path(f"{path}-wal").read_bytes() == committed
    journal.commit()
    assert Path(f"{path}-wal").read_bytes() != committed
    assert [one.seq for one in reopened(journal).load().unfinished] == [1, 2, 3]


def test_a_commit_without_changes_writes_nothing(journal: Journal, path: Path):
    before = Path(f"{path}-wal").read_bytes()
    journal.commit()
    assert Path(f"{path}-wal").read_bytes() == before


def ends(journal: Journal, after: int = 0, limit: int = 100) -> list[tuple[int, str, str]]:
    return [(number, name, state.name) for number, name, state in journal.ends_after(after, limit)]


def uncommitted(journal: Journal) -> bool:
    return journal.has_uncommitted_ends


def test_ends_of_jobs_are_numbered_across_managers(journal: Journal):
    one, two, three = job(1), job(2), job(3)
    three.iterations = Iterations(range(2))
    effects: list[Effect] = [Added([one, two, three]), ended(run(two)), settled(one, -1, State.OMITTED)]
    for effect in effects:
        journal.record(effect)
    journal.commit()
    assert ends(journal) == [(1, "job2", "SUCCEED"), (2, "job1", "OMITTED")]
    reopened(journal)
    assert (journal.ends_before, journal.last_end) == (2, 2)
    effects = [ended(run(three, 0)), ended(run(three, 1)), settled(three, -1, State.SUCCEED), Removed(two)]
    for effect in effects:
        journal.record(effect)
    journal.commit()
    assert ends(journal, after=1) == [(2, "job1", "OMITTED"), (3, "job3", "SUCCEED")]
    assert ends(journal, after=0, limit=1) == [(1, "job2", "SUCCEED")]
    assert (journal.ends_before, journal.last_end) == (2, 3)


def test_ends_that_are_not_committed_are_not_shown(journal: Journal):
    one, two = job(1), job(2)
    for effect in (Added([one, two]), ended(run(one))):
        journal.record(effect)
    journal.job_record(1)  # a query writes the pending changes
    assert uncommitted(journal)
    assert ends(journal) == []
    journal.commit()
    assert not uncommitted(journal)
    journal.record(ended(run(two)))
    journal.record(Removed(two))
    assert ends(journal) == [(1, "job1", "SUCCEED")]
    journal.commit()
    assert ends(journal, after=1) == [(2, "job2", "SUCCEED")]


@pytest.mark.parametrize("asked_between", [False, True])
def test_a_withdrawn_submission_has_no_end(journal: Journal, asked_between: bool):
    one = job(1)
    journal.record(Added([one]))
    journal.record(settled(one, -1, State.FAILED))
    if asked_between:
        journal.job_record(1)
    journal.record(Removed(one))
    journal.commit()
    assert (ends(journal), journal.last_end) == ([], 0)
    for effect in (Added([two := job(2)]), ended(run(two))):
        journal.record(effect)
    journal.commit()
    assert ends(journal) == [(1, "job2", "SUCCEED")]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_ends_are_read_across_batches_and_commits(journal: Journal, limit: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commit_group, "ENDS_IN_BATCH", 2)
    jobs = [job(number) for number in range(1, 9)]
    journal.record(Added(jobs))
    for count in (5, 3):
        for each in jobs[:count]:
            journal.record(ended(run(each)))
        del jobs[:count]
        journal.commit()
    found = [(number, f"job{number}", "SUCCEED") for number in range(1, 9)]
    for after in range(9):
        assert ends(journal, after, limit) == found[after : after + limit]


def test_a_registry_without_the_table_of_ends_is_continued(journal: Journal, path: Path):
    journal.record(Added([job(1)]))
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE ends")
        connection.commit()
    journal.__dict__.update(Journal.open(path).__dict__)
    journal.record(ended(run(job(1))))
    journal.commit()
    assert ends(journal) == [(1, "job1", "SUCCEED")]


@pytest.mark.parametrize("commits", [False, True], ids=["in one group", "in groups of their own"])
def test_a_job_that_runs_again_keeps_its_attempts_and_their_numbers(journal: Journal, commits: bool):
    one = job(1)
    first, second = run(one), run(one, attempt=2)
    for effect in (
        Added([one]),
        ended(first, State.FAILED),
        Reran(one, (-1,), (), True, False, 210.0),
        scheduled(second),
    ):
        if isinstance(effect, Reran):
            assert journal.attempts_so_far([1]) == {1: {-1: (1, 1)}}
        journal.record(effect)
        if commits:
            journal.commit()
    loaded = reopened(journal).load()
    assert [(attempt.number, attempt.seq) for attempt in loaded.open_attempts] == [(2, 1)]
    assert loaded.past == [PastAttempts(1, -1, 1, {}, 0)]
    earlier = [(past.attempt, past.state, past.rerun_at) for past in journal.past_attempts_of(1, -1)]
    assert earlier == [(1, State.FAILED, 210.0)]


def test_a_rerun_forgets_the_node_of_earlier_attempts(journal: Journal):
    one = job(1)
    first, second = run(one), run(one, attempt=2)
    for effect in (
        Added([one]),
        executing(first),
        Requeued(first, PastAttempt("unstartable", 5.0)),
        scheduled(second),
        ended(second, State.FAILED),
        Reran(one, (-1,), (), True, False, 210.0),
    ):
        journal.record(effect)
    (past,) = reopened(journal).load().past
    assert (past.attempts, past.failed_node, past.unstartable) == (2, "", False)


def test_iterations_that_stay_as_they_ended_are_kept_when_others_run_again(journal: Journal):
    one = job(1, indices=range(4))
    assert one.iterations is not None
    one.iterations.make_queued_final(State.CANCELED)
    one.message = "not wanted"
    for effect in (Added([one]), QueuedIterationsFinal(one, State.CANCELED, 9.0), settled(one, -1, State.CANCELED)):
        journal.record(effect)
    journal.record(Reran(one, (1, 2), (0, 3), True, False, 210.0))
    loaded = reopened(journal).load()
    assert [job.seq for job in loaded.unfinished] == [1]
    ended = [(iteration.position, iteration.state) for iteration in loaded.ended_iterations]
    assert ended == [(0, State.CANCELED), (3, State.CANCELED)]


def test_a_requeued_iteration_that_was_cancelled_with_the_rest_stays_so_when_another_runs_again(journal: Journal):
    one = job(1, indices=range(3))
    assert one.iterations is not None
    attempt = run(one, 0)
    for effect in (Added([one]), executing(attempt), Requeued(attempt, PastAttempt("exit", 5.0))):
        journal.record(effect)
    journal.commit()
    one.iterations.make_queued_final(State.CANCELED)
    journal.record(QueuedIterationsFinal(one, State.CANCELED, 9.0))
    journal.record(settled(one, -1, State.CANCELED))
    journal.commit()
    journal.record(Reran(one, (1,), (0, 2), True, False, 210.0))
    ended = [(iteration.position, iteration.state) for iteration in reopened(journal).load().ended_iterations]
    assert ended == [(0, State.CANCELED), (2, State.CANCELED)]


def test_the_number_of_a_requeued_iteration_is_kept_when_it_is_cancelled(journal: Journal):
    one = job(1, indices=range(2))
    attempt = run(one, 1)
    for effect in (Added([one]), executing(attempt), Requeued(attempt, PastAttempt("lost", 5.0))):
        journal.record(effect)
    journal.record(settled(one, 1, State.CANCELED))
    assert journal.attempts_so_far([1]) == {1: {1: (1, 1)}}
