"""`jobs.report` after a crash of the machine: missing entries are restored from the registry, each end once."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.interfaces.factory import InterfaceFactory
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.metadata import OPTIONS, REPORT_SIZE
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.manager.resume import stored_options
from qcg.pilotjob.manager.service import Service
from qcg.pilotjob.report.recovery import entries_of
from qcg.pilotjob.report.writer import Format
from tests.manager.wired import assemble_resumed
from tests.support.pilot import job, write_requests

JOBS = [
    job("good", "true"),
    job("bad", script="exit 3"),
    job("missing", "./there-is-no-such-program"),
    job("omitted", "true", after=["bad"]),
    job("too-large", "true", numCores=9),
    job("it", script="exit $(( ${it} == 1 ))", iteration=3),
    job("same", "true", iteration=3, after=["it:${it}"]),
    job("never", "true", iteration=40, after=["bad"]),
]


@pytest.fixture(scope="module", params=["text", "json"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has ended, with a report of this format."""
    format: Format = request.param
    wd = tmp_path_factory.mktemp(format)
    path = write_requests(wd / "r.json", JOBS)
    options = Options(wd=str(wd), nodes="4", file_path=str(path), wait=True, report_format=format, id="x")
    asyncio.run(asyncio.wait_for(Service(options, interfaces=InterfaceFactory()).run(), 100))
    return wd / ".qcgpjm-service-x"


@pytest.fixture
def run_dir(ended: Path, tmp_path: Path) -> Path:
    shutil.copytree(ended, tmp_path / ended.name)
    return tmp_path / ended.name


def resume(run_dir: Path) -> None:
    """Resume the run as a manager does, as far as the report is concerned."""

    async def within() -> None:
        journal = Journal.open(run_dir / FILE_NAME)
        options = stored_options(journal)
        wd = Path(options.wd)  # the working directory of the jobs, although this is a copy of the run directory
        pilot = assemble_resumed(options, wd, run_dir, journal)
        await pilot.engine.close()

    asyncio.run(within())


def entries(report: bytes) -> list[bytes]:
    """The entries of an undamaged report, in the order of their names."""
    found = list(entries_of(report))
    assert all(entry.key for entry in found), report
    return sorted(entry.text for entry in found)


def check_recovered(run_dir: Path, before: bytes) -> None:
    resume(run_dir)
    after = (run_dir / "jobs.report").read_bytes()
    assert entries(after) == entries(before)
    with snapshot(run_dir / FILE_NAME) as connection:
        assert REPORT_SIZE.read(connection) == len(after)


def test_every_end_has_one_entry(run_dir: Path):
    """The report with which other tests compare."""
    before = (run_dir / "jobs.report").read_bytes()
    names = [entry.key.name for entry in entries_of(before) if entry.key]
    single = [b"good", b"bad", b"missing", b"omitted", b"too-large", b"it", b"same", b"never"]
    assert sorted(names) == sorted(
        single + [b"%s:%d" % (name, index) for name in (b"it", b"same") for index in range(3)]
    )


def test_a_complete_report_is_not_changed(run_dir: Path):
    path = run_dir / "jobs.report"
    before, inode = path.read_bytes(), path.stat().st_ino
    resume(run_dir)
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)


def test_a_missing_report_is_written_again(run_dir: Path):
    before = (run_dir / "jobs.report").read_bytes()
    (run_dir / "jobs.report").unlink()
    check_recovered(run_dir, before)


def test_a_truncated_report_is_completed(run_dir: Path):
    path = run_dir / "jobs.report"
    before = path.read_bytes()
    boundaries = [entry.start for entry in entries_of(before)]
    lines = [place + 1 for place, byte in enumerate(before) if byte == ord("\n")]
    lengths = {0, 1, len(before) - 1, *boundaries[1::3], *lines[1::9], *random.Random(7).sample(range(len(before)), 8)}
    for length in lengths:
        path.write_bytes(before[:length])
        check_recovered(run_dir, before)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros at the end": lambda report: report[:-300] + bytes(300),
    "zeros in the middle": lambda report: report[:500] + bytes(200) + report[700:],
    "nothing but zeros": lambda report: bytes(len(report)),
    "another end": lambda report: report[:-20] + b"x" * 20,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_written_again(run_dir: Path, damage: str):
    path = run_dir / "jobs.report"
    before = path.read_bytes()
    path.write_bytes(DAMAGES[damage](before))
    check_recovered(run_dir, before)


def test_an_interrupted_recovery_is_repeated(run_dir: Path):
    """The manager died after it had truncated the report, and before it had committed."""
    path = run_dir / "jobs.report"
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 3])
    journal = Journal.open(run_dir / FILE_NAME)
    journal.set_metadata(REPORT_SIZE, -1)
    journal.close()
    check_recovered(run_dir, before)


def test_another_report_file_gets_all_ends(run_dir: Path):
    before = (run_dir / "jobs.report").read_bytes()
    journal = Journal.open(run_dir / FILE_NAME)
    options = journal.metadata(OPTIONS)
    assert options is not None
    journal.set_metadata(OPTIONS, msgspec.structs.replace(options, report_file="other.report"))
    journal.close()
    resume(run_dir)
    assert entries((run_dir / "other.report").read_bytes()) == entries(before)
    assert (run_dir / "jobs.report").read_bytes() == before
