"""`jobs.report` has every end exactly once in the documented formats, even after full disks and crashes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant, NodePart
from qcg.pilotjob.description.model import Amount, Execution, JobDescription, ResourceRequest
from qcg.pilotjob.report.entries import json_entry, text_entry
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.formats import iso_timestamp, timestamp
from qcg.pilotjob.report.record import IterationCounts, JobEnd
from qcg.pilotjob.report.writer import Format, ReportWriter

AT = 1515682947.740711
GRANT = Grant((NodePart("n1", (0, 1)), NodePart("n2", (0,))))
DESCRIPTION = JobDescription(
    "msleep2",
    Execution(exec="sleep", args=("5",)),
    ResourceRequest(cores=Amount(2, 2)),
    after=("other",),
    attributes={"mine": [1, None]},
)
TIMES = (AT, AT + 1, AT + 2, AT + 8.082136)
DONE = JobEnd("msleep2", State.SUCCEED, *TIMES, GRANT, "/path", 0, 4711, "sleep", "", DESCRIPTION)
OMITTED = JobEnd("late", State.OMITTED, AT, ended=AT + 1, message="it waits\nin vain")
ITERATION = JobEnd("it:3", State.FAILED, AT, AT + 1, 0.0, AT + 8, GRANT, "/path", -1, 0, "x", "no such file")
PARENT = JobEnd(
    "it", State.FAILED, AT, 0.0, AT + 2, AT + 8, description=DESCRIPTION, iterations=IterationCounts(9, 4, 3, 2, 0)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.report"


def written(path: Path, format: Format, *ends: JobEnd) -> str:
    writer = ReportWriter(path, format)
    for end in ends:
        writer.ended(end)
    writer.close()
    return path.read_text()


def test_a_text_entry_has_every_known_value(path: Path):
    assert written(path, "text", DONE) == (
        "msleep2 (SUCCEED)\n"
        f"    {timestamp(AT)}: QUEUED\n"
        f"    {timestamp(AT + 1)}: SCHEDULED\n"
        f"    {timestamp(AT + 2)}: EXECUTING\n"
        f"    {timestamp(AT + 8.082136)}: SUCCEED\n"
        "    allocation: n1[0:1],n2[0]\n"
        "    wd: /path\n"
        "    rtime: 0:00:06.082136\n"
        "    exit_code: 0\n"
        "    pid: 4711\n"
        "    pname: sleep\n"
    )


def test_a_job_that_never_started_has_no_runtime_lines(path: Path):
    assert written(path, "text", OMITTED) == (
        "late (OMITTED)\n"
        f"    {timestamp(AT)}: QUEUED\n"
        f"    {timestamp(AT + 1)}: OMITTED\n"
        "    messages: it waits\n"
        "        in vain\n"
    )


@given(
    state=st.sampled_from([state for state in State if state.is_final]),
    scheduled=st.sampled_from([0.0, AT + 1]),
    started=st.sampled_from([0.0, AT + 2]),
    grant=st.sampled_from([None, GRANT]),
    exit_code=st.sampled_from([None, 0, -9]),
    pid=st.sampled_from([0, 4711]),
)
def test_both_formats_have_the_same_content(
    state: State, scheduled: float, started: float, grant: Grant | None, exit_code: int | None, pid: int
):
    end = JobEnd("j", state, AT, scheduled, started, AT + 8, grant, "/path", exit_code, pid, "sleep")
    entry = json.loads(json_entry(end))
    history = [f"{step['date'].replace('T', ' ')}: {step['state']}" for step in entry["history"]]
    runtime = [f"{key}: {value}" for key, value in entry["runtime"].items()]
    assert text_entry(end).decode() == "\n    ".join([f"j ({state.name})", *history, *runtime]) + "\n"


def test_an_iterated_job_is_reported_with_its_counts(path: Path):
    last = written(path, "text", PARENT).splitlines()[-1]
    assert last == "    iterations: total 9, succeed 4, failed 3, canceled 2, omitted 0"


def test_json_has_one_object_a_line(path: Path):
    lines = written(path, "json", DONE, OMITTED, ITERATION, PARENT).splitlines()
    done, omitted, iteration, parent = map(json.loads, lines)
    assert done == {
        "name": "msleep2",
        "state": "SUCCEED",
        "history": [
            {"state": state, "date": iso_timestamp(at)}
            for state, at in zip(("QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED"), TIMES, strict=True)
        ],
        "runtime": {
            "allocation": "n1[0:1],n2[0]",
            "wd": "/path",
            "rtime": "0:00:06.082136",
            "exit_code": "0",
            "pid": "4711",
            "pname": "sleep",
        },
        "execution": {"exec": "sleep", "args": ["5"]},
        "resources": {"numCores": {"exact": 2}},
        "dependencies": {"after": ["other"]},
        "attributes": {"mine": [1, None]},
    }
    assert (omitted["runtime"], omitted["messages"]) == ({}, "it waits\nin vain")
    assert (iteration["name"], iteration["runtime"]["exit_code"]) == ("it:3", "-1")
    assert not {"execution", "resources", "dependencies", "iterations"} & set(iteration)
    assert parent["iterations"] == {"total": 9, "succeed": 4, "failed": 3, "canceled": 2, "omitted": 0}


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_file_name_that_is_not_utf_8_is_escaped(path: Path, format: Format):
    wd = os.fsdecode(b"/caf\xe9")
    writer = ReportWriter(path, format)
    writer.ended(JobEnd("j", State.SUCCEED, *TIMES, GRANT, wd, description=DESCRIPTION))
    writer.close()
    content = path.read_bytes()
    if format == "text":
        assert b"    wd: /caf\\xe9\n" in content
    else:
        assert json.loads(content)["runtime"]["wd"] == wd


def test_no_report_is_no_file(path: Path):
    writer = ReportWriter(path, "none")
    writer.ended(DONE)
    assert writer.flush() == 0
    writer.close()
    assert not path.exists()


def test_the_report_belongs_to_its_owner_alone(path: Path):
    written(path, "text")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_report_replaces_an_old_one(path: Path):
    path.write_text("old and long " * 1000)
    assert written(path, "text", OMITTED).startswith("late (OMITTED)\n")


def test_the_report_can_be_written_to_dev_null():
    writer = ReportWriter(Path("/dev/null"), "text")
    writer.ended(DONE)
    writer.close()


def test_flush_writes_entries_and_returns_the_length(path: Path):
    writer = ReportWriter(path, "text")
    assert writer.flush() == 0
    writer.ended(DONE)
    assert path.read_text() == ""
    size = writer.flush()
    assert size == path.stat().st_size > 0
    assert writer.flush() == size
    writer.ended(OMITTED)
    assert writer.flush() == path.stat().st_size > size
    writer.close()


@pytest.mark.parametrize("format", ["text", "json"])
def test_after_a_crash_entries_that_were_not_committed_are_cut_off(path: Path, format: Format):
    expected = written(path, format, DONE, OMITTED)
    writer = ReportWriter(path, format)
    writer.ended(DONE)
    stored = writer.flush()
    writer.ended(ITERATION)
    writer.close()
    again = ReportWriter.resume(path, format, stored)
    again.ended(OMITTED)
    again.close()
    assert path.read_text() == expected


def test_a_report_that_was_removed_is_created_again(path: Path):
    writer = ReportWriter.resume(path, "text", 1000)
    writer.ended(OMITTED)
    assert writer.flush() == path.stat().st_size
    writer.close()
    assert path.read_text().startswith("late (OMITTED)\n")


def test_a_full_disk_neither_loses_nor_repeats_entries(path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = written(path, "text", DONE, OMITTED, ITERATION)
    room = 100
    real = os.pwrite

    def pwrite(file: int, data: bytes, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[: room - offset], offset)

    writer = ReportWriter(path, "text")
    monkeypatch.setattr(os, "pwrite", pwrite)
    writer.ended(DONE)
    for _ in range(2):
        with pytest.raises(
            ReportError, match=r"could not be written: No space left on device; make room, or give another file"
        ):
            writer.flush()
    writer.ended(OMITTED)
    room = 300
    with pytest.raises(ReportError):
        writer.flush()
    monkeypatch.undo()
    writer.ended(ITERATION)
    writer.close()
    assert path.read_text() == expected


def test_a_disk_that_stays_full_keeps_whole_entries_only(path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = written(path, "text", DONE)
    writer = ReportWriter(path, "text")
    writer.ended(DONE)
    size = writer.flush()
    real = os.pwrite

    def pwrite(file: int, data: bytes, offset: int) -> int:
        if offset > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[:10], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    writer.ended(OMITTED)
    with pytest.raises(ReportError):
        writer.close()
    assert path.read_text() == expected


@pytest.mark.parametrize("place", ["missing/jobs.report", "."])
def test_a_report_that_cannot_be_opened_is_an_error(tmp_path: Path, place: str):
    with pytest.raises(
        ReportError, match=r"could not be opened: (No such file or|it is a) directory; give another file with"
    ):
        ReportWriter(tmp_path / place, "text")
