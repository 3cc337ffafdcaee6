"""Registries with cells or pages that no manager has written: every command says so in a sentence, and reads the rest.

QCG_PM_ALL_FAULTS=1 tries every cell with every value.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.cli.main import main
from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.manager.resume import stored_options
from qcg.pilotjob.manager.service import Service
from tests.manager.wired import assemble_resumed
from tests.support.pilot import job, write_requests
from tests.support.tiers import per_tier

EVERYTHING = os.environ.get("QCG_PM_ALL_FAULTS") == "1"
SEED = 20261117
RUN = ".qcgpjm-service-x"
VALUES: list[Any] = [
    None,
    "text",
    "",
    "not utf-8",
    "nul\0inside",
    -1,
    7,
    10**6,
    2**62,
    3.5,
    1e300,
    float("inf"),
    b"",
    b"\xff\xfe",
    b"\x93\x01",
]
NOT_UTF_8 = "CAST(x'fffe41' AS TEXT)"
COMMANDS = [
    ["report"],
    ["report", "--json"],
    ["report", "--analysis"],
    ["report", "--csv", "-"],
    ["jobs"],
    ["jobs", "--json"],
    ["info", "it", "--json"],
    ["info", "bad"],
    ["why", "bad"],
    ["why", "waits"],
    ["logs", "bad"],
    ["status"],
    ["wait", "good"],
]
JOBS = [
    job("good", "true"),
    job("bad", script="echo no >&2; exit 3", stderr="bad.err"),
    job("omitted", "true", after=["bad"]),
    job("it", script="exit $(( ${it} == 1 ))", iteration=3),
    job("waits", "true"),
    job("lost", "true"),
    job("some", "true", iteration=3),
    job("mpi", "true", model="openmpi", model_opts={"mpirun": "/bin/true"}),
]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of a run that was left with jobs waiting, running, lost and ended."""
    wd = tmp_path_factory.mktemp("left")
    options = Options(wd=str(wd), nodes="4", file_path=str(write_requests(wd / "r.json", JOBS)), wait=True, id="x")
    asyncio.run(asyncio.wait_for(Service(options, interfaces=InterfaceFactory()).run(), 100))
    with closing(sqlite3.connect(wd / RUN / FILE_NAME, isolation_level=None)) as registry:
        number = dict(registry.execute("SELECT name, seq FROM submitted_jobs"))
        registry.execute("DELETE FROM runs WHERE place = ? << 32", (number["waits"],))
        registry.execute("UPDATE runs SET state = 2, ended = 0 WHERE place = ? << 32", (number["lost"],))
        registry.execute("UPDATE runs SET state = 0, ended = 0 WHERE place = (? << 32) + 2", (number["some"],))
        registry.execute("UPDATE submitted_jobs SET state = 2, ended = 0 WHERE name = 'some'")
    return wd


@pytest.fixture
def wd(left: Path, tmp_path: Path) -> Path:
    return copied(left, tmp_path / "wd")


def copied(left: Path, wd: Path) -> Path:
    shutil.rmtree(wd, ignore_errors=True)
    shutil.copytree(left, wd, symlinks=True)
    return wd


def call(wd: Path, command: list[str]) -> Result:
    where = [str(wd)] if command[0] == "report" else ["--path", str(wd)]
    done = CliRunner().invoke(main, [*command, *where])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{command} did not end in a sentence") from done.exception
    assert done.exit_code in (0, 1, 2), done.output
    assert done.output.strip()
    return done


def resume(wd: Path) -> str:
    """Resume the run as a manager does; the message of a refusal, or nothing."""

    async def within() -> None:
        journal = Journal.open(wd / RUN / FILE_NAME)
        try:
            options = stored_options(journal)
            pilot = assemble_resumed(options, wd, wd / RUN, journal)
            await pilot.engine.close()
        finally:
            journal.close(commit=False)

    try:
        asyncio.run(within())
    except (JournalError, UsageError) as error:
        return str(error)
    return ""


def change(wd: Path, table: str, column: str, key: Any, value: Any) -> bool:
    """Write a value into one cell; False where SQLite refuses it."""
    with closing(sqlite3.connect(wd / RUN / FILE_NAME, isolation_level=None)) as registry:
        (first,) = registry.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE cid = 0").fetchone()
        given, values = (NOT_UTF_8, [key]) if value == "not utf-8" else ("?", [value, key])
        try:
            registry.execute(f"UPDATE {table} SET {column} = {given} WHERE {first} = ?", values)
        except sqlite3.Error:
            return False
    return True


def cells(left: Path) -> Iterator[tuple[str, str, list[Any]]]:
    """Table, column, and the keys of all rows."""
    with closing(sqlite3.connect(f"file:{left / RUN / FILE_NAME}?mode=ro", uri=True)) as registry:
        for table in ("meta", "agents", "submitted_jobs", "runs", "commands", "ends"):
            columns = [name for (name,) in registry.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            keys = [key for (key,) in registry.execute(f"SELECT {columns[0]} FROM {table}")]
            assert keys, table
            for column in columns:
                yield table, column, keys


@pytest.mark.sampled
@pytest.mark.timeout(7200 if EVERYTHING else per_tier(120, 1800))
def test_every_command_copes_with_any_changed_cell(left: Path, tmp_path: Path):
    chance = random.Random(SEED)
    for table, column, keys in cells(left):
        tries = [(key, value) for key in keys for value in VALUES]
        wanted = per_tier(6, 15) if table == "meta" else per_tier(2, 15)
        for key, value in tries if EVERYTHING else chance.sample(tries, wanted):
            wd = copied(left, tmp_path / "wd")
            if not change(wd, table, column, key, value):
                continue
            commands = COMMANDS if EVERYTHING else [["report"], *chance.sample(COMMANDS, 2)]
            try:
                for command in commands:
                    call(wd, command)
                resume(wd)
            except Exception as error:
                raise AssertionError(f"{table}.{column} of {key!r} was {value!r}") from error


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("submitted_jobs", "state", 99),
        ("submitted_jobs", "spec", b"\x93\x01"),
        ("submitted_jobs", "submitted", "text"),
        ("runs", "state", "text"),
        ("runs", "started", b""),
        ("runs", "granted", b"\xff"),
        ("runs", "exit_code", 2**62),
    ],
)
def test_a_damaged_job_is_named_and_the_others_are_shown(wd: Path, table: str, column: str, value: Any):
    number = 1 + [job["name"] for job in JOBS].index("it")
    key = number if table == "submitted_jobs" else (number << 32) + 2
    assert change(wd, table, column, key, value)
    report = call(wd, ["report"])
    assert report.exit_code == 0
    assert "The registry is damaged" in report.output
    assert f"job {number}" in report.output
    assert column in report.output
    assert "bad FAILED: exit code 3" in report.output, "what can be read is read"
    told = json.loads(call(wd, ["report", "--json"]).output.partition("\nNote:")[0])
    assert [what for what in told["unreadable"] if column in what]
    jobs = call(wd, ["jobs"])
    assert "good" in jobs.output
    assert "The registry is damaged" in jobs.output
    refused = resume(wd)
    assert "is damaged and cannot be continued" in refused
    assert column in refused


def test_a_run_that_may_have_unreadable_jobs_left_is_not_removed(wd: Path):
    """All jobs that can be read have ended."""
    with closing(sqlite3.connect(wd / RUN / FILE_NAME, isolation_level=None)) as registry:
        registry.execute("UPDATE submitted_jobs SET state = 99 WHERE ended = 0")
    ended = call(wd, ["jobs"])
    assert "The registry is damaged" in ended.output
    assert "All jobs have ended" not in ended.output
    listed = CliRunner().invoke(main, ["runs", str(wd)])
    assert f"{RUN}  damaged" in listed.output
    assert "not readable: job" in listed.output
    kept = CliRunner().invoke(main, ["clean", str(wd)])
    assert f"Kept {RUN}: its registry is damaged, and jobs may be left; --all removes it." in kept.output
    assert (wd / RUN / FILE_NAME).exists()


def test_a_job_whose_number_no_manager_gives_is_left_out(wd: Path):
    number = 1 + [job["name"] for job in JOBS].index("it")
    assert change(wd, "submitted_jobs", "seq", number, 2**62)
    for command in COMMANDS:
        call(wd, command)
    report = call(wd, ["report"])
    assert "The registry is damaged" in report.output
    assert f"job {2**62}" in report.output
    assert "is damaged and cannot be continued" in resume(wd)


def test_a_damaged_schema_is_reported_in_one_sentence(wd: Path):
    path = wd / RUN / FILE_NAME
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"CREATE TABLE submitted_jobs (", b"CREATE TABLE submitted_jobs \xb0"))
    assert path.read_bytes() != sound
    for command in [["report"], *COMMANDS]:
        call(wd, command)
    assert resume(wd)


def test_an_error_of_the_disk_during_a_query_is_reported_in_one_sentence(wd: Path, monkeypatch: pytest.MonkeyPatch):
    """The registry could be opened, and then a page of it could not be read."""

    def fail(*given: Any) -> Iterator[Any]:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("qcg.pilotjob.journal.queries.past_rows", fail)
    for command in (["info", "bad"], ["why", "bad"], ["logs", "bad"]):
        done = call(wd, command)
        assert done.exit_code == 2
        assert f"The registry {wd / RUN / FILE_NAME} could not be read: disk I/O error" in done.output
    assert "could not be read: disk I/O error" in resume(wd)


def test_a_registry_without_damage_is_reported_without_a_warning(wd: Path):
    assert "damaged" not in call(wd, ["report"]).output
    assert json.loads(call(wd, ["report", "--json"]).output.partition("\nNote:")[0])["unreadable"] == []
    assert resume(wd) == ""


@pytest.mark.sampled
@pytest.mark.timeout(7200 if EVERYTHING else per_tier(120, 1800))
def test_every_command_copes_with_damaged_pages(left: Path, tmp_path: Path):
    chance = random.Random(SEED)
    whole = (left / RUN / FILE_NAME).read_bytes()
    for number in range(400 if EVERYTHING else per_tier(25, 200)):
        wd = copied(left, tmp_path / "wd")
        place = chance.randrange(len(whole))
        damaged = [
            whole[:place],
            whole[:place] + bytes(512) + whole[place + 512 :],
            whole[:place] + chance.randbytes(64) + whole[place + 64 :],
        ][number % 3]
        (wd / RUN / FILE_NAME).write_bytes(damaged)
        try:
            for command in [["report"], *chance.sample(COMMANDS, 2)]:
                call(wd, command)
            resume(wd)
        except Exception as error:
            raise AssertionError(f"try {number}, byte {place}") from error
