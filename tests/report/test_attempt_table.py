"""The table of attempts: every attempt once, with all known values; as records, CSV, Parquet and data frame."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qcg.pilotjob.core.attempt_events import FORGOTTEN, UNKNOWN
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.executors.ledger_reader import UNSURE
from qcg.pilotjob.host.memory_limits import OUT_OF_MEMORY, at_limit
from qcg.pilotjob.journal.end_causes import cause_of_end
from qcg.pilotjob.journal.journal import FILE_NAME, Journal
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.report import AttemptRow, ReportError, attempts, attempts_frame
from qcg.pilotjob.report.attempt_columns import read_columns
from qcg.pilotjob.report.attempt_files import COLUMNS, iso_utc, write_csv
from qcg.pilotjob.report.attempt_table import read_attempts
from qcg.pilotjob.runs.rundir import PREFIX
from tests.support.hostile_texts import HOSTILE
from tests.support.large_registry import USAGE, Shape, write_registry
from tests.support.pilot import COMMANDS, job, run, run_requests, start, write_requests
from tests.support.project import ROOT
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def wd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of a real run: iterations with parameters, a retry, a failure, a job that never starts."""
    directory = tmp_path_factory.mktemp("run")
    once = "test -e again || { touch again; exit 3; }"
    sweep = {"zip": {"T": [1.5, 2.5], "kind": ["a", "b"]}}
    done = run_requests(
        directory,
        [
            job("sweep", "true", iteration=sweep),
            job("again", "bash", "-c", once, retry={"on": {"exit": 2}}),
            job("bad", "bash", "-c", "exit 7"),
            job("wide", "true", numCores={"exact": 2}),
            job("never", "true", after=["bad"]),
        ],
        options=("--nodes", "2x2"),
    )
    assert len(done.states) == 7, done.done.stderr
    return directory


def test_there_is_one_record_for_each_attempt(wd: Path):
    found = attempts(wd)
    names = [(one.name, one.attempt, one.state) for one in found]
    assert names == [
        *[(f"sweep:{index}", 1, "SUCCEED") for index in range(2)],
        ("again", 1, "FAILED"),
        ("again", 2, "SUCCEED"),
        ("bad", 1, "FAILED"),
        ("wide", 1, "SUCCEED"),
    ]
    assert [(one.job, one.iteration) for one in found[:3]] == [("sweep", 0), ("sweep", 1), ("again", None)]
    assert json.loads(found[1].parameters) == {"T": 2.5, "kind": "b"}
    assert found[2].parameters == ""
    assert [one.exit_code for one in found] == [0, 0, 3, 0, 7, 0]
    assert [one.cause for one in found] == ["", "", "exit", "", "", ""]
    assert [one.cores for one in found] == [1, 1, 1, 1, 1, 2]
    for one in found:
        assert one.scheduled is not None
        assert one.started is not None
        assert one.ended is not None
        assert one.submitted <= one.scheduled <= one.started <= one.ended
        assert one.run_seconds == pytest.approx(one.ended - one.started)
        assert one.launch_seconds == pytest.approx(one.started - one.scheduled)
        assert one.nodes
        assert re.sub(r"\[[^]]*\]", "", one.allocation) == one.nodes
        assert one.max_memory is None or one.max_memory > 100_000
        assert one.gpus == 0
    first, second = found[2:4]
    assert first.queue_seconds == pytest.approx((first.scheduled or 0) - first.submitted)
    assert second.queue_seconds == pytest.approx((second.scheduled or 0) - (first.ended or 0))


def test_an_attempt_that_ended_with_its_manager_has_not_failed(tmp_path: Path):
    script = "[ -e started ] || { touch started; exec sleep 60; }"
    requests = write_requests(tmp_path / "r.json", [job("long", script=script)])
    process = start("qcg-pm", "run", requests, "--wd", tmp_path, cwd=tmp_path)
    wait_for((tmp_path / "started").exists, what="the job")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert run("qcg-pm", "run", "--resume", tmp_path).returncode == 0
    found = [(one.state, one.cause) for one in attempts(tmp_path)]
    assert found == [("CANCELED", "closed"), ("SUCCEED", "")]
    with snapshot(next(tmp_path.glob(f"{PREFIX}*")) / FILE_NAME) as connection:
        columns = read_columns(connection)
    assert State.FAILED not in [State(state) for state in columns.states]


def test_the_causes_of_attempts_that_are_run_again_by_hand_are_those_of_retries(tmp_path: Path):
    eat = "import time; held = bytearray(300 << 20); time.sleep(60)"
    jobs = [
        job("exit", script="exit 4"),
        job("signal", script="kill -SEGV $$"),
        job("timeout", "sleep", "60", resources={"wt": "1s"}),
        job("memory", sys.executable, "-c", eat, resources={"mem": "60MB"}),
        job("unstartable", "/no/such/program"),
    ]
    first = write_requests(tmp_path / "r.json", jobs)
    assert run("qcg-pm", "run", first, "--wd", tmp_path, "--cores", "4").returncode == 1
    assert run("qcg-pm", "run", "--resume", tmp_path, "--rerun", "failed").returncode == 1
    repeated = {one.name: one.cause for one in attempts(tmp_path) if one.cause}
    assert repeated == {name: name for name in ("exit", "signal", "timeout", "memory", "unstartable")}


@pytest.mark.parametrize(
    ("stored", "exit_code", "started", "message", "cause"),
    [
        ("exit", 1, 1.0, "It cannot be started: row 2 of rows.csv is missing.", "unstartable"),
        ("exit", 1, 1.0, "there is no virtual environment at '/x' (no bin/activate in it)", "exit"),
        ("exit", 137, 1.0, OUT_OF_MEMORY, "memory"),
        ("failed", -9, 1.0, at_limit(1 << 20), "memory"),
        ("failed", -15, 1.0, "Slurm ended the job at the time limit of the batch job (state TIMEOUT).", "timeout"),
        ("failed", 0, 1.0, "out/*.dat could not be copied", "staging"),
        ("failed", -1, 1.0, FORGOTTEN, "lost"),
        ("failed", -1, 0.0, f"node lost; {UNKNOWN}", "lost"),
        ("failed", -1, 0.0, UNSURE, "lost"),
        ("failed", -2, 1.0, "it ended", "failed"),
        ("cancel", -15, 1.0, "exit code 3", "cancel"),
        ("timeout", 3, 1.0, "exit code 3", "timeout"),
    ],
)
def test_a_cause_that_was_not_stored_follows_from_the_message(
    stored: str, exit_code: int, started: float, message: str, cause: str
):
    assert cause_of_end(stored, exit_code, started, message) == cause


def test_parameters_from_files_are_in_the_table(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("T,name\n1,x\n2,y\n")
    run_requests(tmp_path, [job("rows", "true", iteration={"file": "rows.csv"})])
    assert [json.loads(one.parameters)["name"] for one in attempts(tmp_path)] == ["x", "y"]
    (tmp_path / "rows.csv").unlink()
    assert [json.loads(one.parameters)["name"] for one in attempts(tmp_path)] == ["x", "y"], "from the copy of the run"


def test_usage_and_grants_of_attempts_are_in_the_table(tmp_path: Path):
    path = tmp_path / FILE_NAME
    write_registry(path, Shape(10, nodes=1, cores=2, failed=0.5))
    with snapshot(path) as connection:
        found = list(read_attempts(connection))
    assert len(found) == 10
    for one in found:
        assert (one.cpu_seconds, one.max_memory) == (1.0, USAGE.memory << 10)
        assert (one.minor_faults, one.major_faults, one.read_bytes, one.written_bytes) == (5, 0, 4096, 8192)
        assert one.cpu_efficiency == pytest.approx(1.0 / (one.run_seconds or 0))
        assert one.exit_code == (1 if one.state == "FAILED" else 0)


def test_csv_has_the_same_values(wd: Path, tmp_path: Path):
    done = run("qcg-pm", "report", wd, "--csv", tmp_path / "attempts.csv")
    assert (done.returncode, done.stdout) == (0, "")
    with (tmp_path / "attempts.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    found = attempts(wd)
    assert len(lines) == len(found)
    assert lines[0].keys() == set(COLUMNS)
    for line, one in zip(lines, found, strict=True):
        for name, value in msgspec.structs.asdict(one).items():
            if name in ("submitted", "scheduled", "started", "ended"):
                assert datetime.fromisoformat(line[name]).timestamp() == pytest.approx(value, abs=1e-6)
            else:
                assert line[name] == ("" if value is None else str(value))
    assert run("qcg-pm", "report", wd, "--csv", "-").stdout == (tmp_path / "attempts.csv").read_text()


def test_hostile_texts_stay_exact_in_files_and_harmless_on_terminals(tmp_path: Path):
    texts = [text for text in HOSTILE.values() if "\0" not in text]
    rows = [_row(name=text, message=f'{text},"\n') for text in texts]
    file = io.StringIO()
    write_csv(rows, file)
    lines = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    assert [line["name"] for line in lines] == texts
    assert [line["message"] for line in lines] == [f'{text},"\n' for text in texts]
    run_requests(tmp_path, [job("bad", "red \x1b[31m")])
    master, slave = pty.openpty()
    command = [sys.executable, *COMMANDS["qcg-pm"], "report", str(tmp_path), "--csv", "-"]
    assert subprocess.run(command, stdout=slave, check=True).returncode == 0
    os.close(slave)
    shown = os.read(master, 65536)
    os.close(master)
    assert b"\\x1b[31m" in shown
    assert b"\x1b" not in shown


def _row(**values: Any) -> AttemptRow:
    defaults: dict[str, Any] = dict.fromkeys(COLUMNS)
    return AttemptRow(**(defaults | values))


def read_parquet(path: Path) -> Any:
    import pyarrow.parquet  # imported here: every worker collects this file, and this takes long

    return pyarrow.parquet.read_table(path)


def test_parquet_has_the_same_values_with_types(wd: Path, tmp_path: Path):
    done = run("qcg-pm", "report", wd, "--parquet", tmp_path / "attempts.parquet")
    assert done.returncode == 0, done.stderr
    table = read_parquet(tmp_path / "attempts.parquet")
    assert tuple(table.column_names) == COLUMNS
    assert str(table.schema.field("started").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("exit_code").type) == "int64"
    for line, one in zip(table.to_pylist(), attempts(wd), strict=True):
        assert line["started"].timestamp() == pytest.approx(one.started, abs=1e-6)
        assert {name: line[name] for name in ("name", "attempt", "cpu_seconds", "message", "iteration")} == {
            name: getattr(one, name) for name in ("name", "attempt", "cpu_seconds", "message", "iteration")
        }


def test_a_data_frame_has_the_same_values_with_types(wd: Path):
    import pandas  # as pyarrow above

    frame = attempts_frame(wd)
    assert list(frame.columns) == list(COLUMNS)
    found = attempts(wd)
    assert list(frame["name"]) == [one.name for one in found]
    assert frame["started"].dt.tz is not None
    assert frame["iteration"].dtype == "Int64"
    assert frame.groupby("state")["run_seconds"].count().to_dict() == {"FAILED": 2, "SUCCEED": 4}
    assert frame["started"][0].round("us") == pandas.Timestamp(iso_utc(found[0].started))


def test_a_run_without_attempts_gives_an_empty_table(tmp_path: Path):
    Journal.create(tmp_path / FILE_NAME).close()
    tmp_path.chmod(0o700)
    assert attempts(tmp_path) == []
    assert attempts_frame(tmp_path).empty
    assert run("qcg-pm", "report", tmp_path, "--csv", "-").stdout == ",".join(COLUMNS) + "\n"
    done = run("qcg-pm", "report", tmp_path, "--parquet", tmp_path / "p")
    assert done.returncode == 0, done.stderr
    assert read_parquet(tmp_path / "p").num_rows == 0


@pytest.mark.parametrize("package", ["pyarrow", "pandas"])
def test_a_missing_package_is_named_with_the_command_to_install_it(
    wd: Path, tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
):
    hidden = tmp_path / package
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if package == "pyarrow":
        done = run("qcg-pm", "report", wd, "--parquet", tmp_path / "file")
        assert done.returncode == 2
        assert "pip install 'qcg-pilotjob[parquet]'" in done.stderr
        assert not (tmp_path / "file").exists()
    else:
        code = f"from qcg.pilotjob.report import attempts_frame; attempts_frame({str(wd)!r})"
        failed = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
        assert (
            "ReportError: A data frame needs the package pandas; install it with: pip install pandas." in failed.stderr
        )


def test_files_that_cannot_be_read_or_written_are_reported_in_one_sentence(wd: Path, tmp_path: Path):
    with pytest.raises(ReportError, match="no run"):
        attempts(tmp_path)
    for option in ("--csv", "--parquet"):
        done = run("qcg-pm", "report", wd, option, tmp_path)
        assert (done.returncode, done.stderr) == (2, f"Error: {tmp_path} cannot be used: it is a directory.\n")
        done = run("qcg-pm", "report", wd, option, tmp_path / "none" / "file")
        assert done.stderr == f"Error: {tmp_path}/none/file could not be written: No such file or directory.\n"
        done = run("qcg-pm", "report", wd, option, "/dev/full")
        assert done.stderr == "Error: /dev/full could not be written: No space left on device.\n"


@pytest.fixture
def half_read(tmp_path: Path) -> Path:
    """The directory of a run with more attempts, and earlier attempts, than one write to a file takes."""
    path = tmp_path / f"{PREFIX}x" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    write_registry(path, Shape(2000, retried=0.5))
    return tmp_path


def written_to(stdout: Any, *arguments: str | Path) -> tuple[int, str]:
    """The exit code and the standard error of `qcg-pm report`."""
    command = [sys.executable, *COMMANDS["qcg-pm"], "report", *map(str, arguments)]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


def test_a_full_disk_is_told_in_one_sentence(half_read: Path):
    full = "Error: /dev/full could not be written: No space left on device.\n"
    assert written_to(None, half_read, "--csv", "/dev/full") == (2, full)
    with open("/dev/full", "wb") as stdout:
        lost = "Error: standard output cannot be written: No space left on device\n"
        assert written_to(stdout, half_read, "--csv", "-") == (5, lost)


def test_a_reader_that_has_enough_ends_the_table_in_silence(half_read: Path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as stdout:
        assert written_to(stdout, half_read, "--csv", "-") == (0, "")


def test_importing_the_package_is_cheap():
    code = "import qcg.pilotjob.report, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert not {"sqlite3", "msgspec", "pandas", "pyarrow", "csv"} & set(loaded)


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_many_attempts_are_written_without_keeping_them_in_memory(tmp_path: Path):
    number = per_tier(50_000, 1_000_000)
    path = tmp_path / ".qcgpjm-service-x" / FILE_NAME
    path.parent.mkdir(mode=0o700)
    write_registry(path, Shape(number))
    code = (
        "import resource, sys, time; from pathlib import Path\n"
        "from qcg.pilotjob.report.attempt_files import open_attempts, write_csv\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "with open_attempts(Path(sys.argv[1])) as found, open(sys.argv[2], 'w') as file: write_csv(found, file)\n"
        "print(peak() - before, time.process_time())"
    )
    command = [sys.executable, "-c", code, str(path.parent), str(tmp_path / "file.csv")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    kilobytes, seconds = map(float, done.stdout.split())
    with (tmp_path / "file.csv").open() as file:
        assert sum(1 for _ in file) > number
    assert kilobytes < 40_000
    assert seconds < 5 + number * 6e-5


def test_every_column_is_documented():
    page = (ROOT / "docs/how-to/analyse-run.md").read_text()
    table = page[page.index("### Columns") :]
    assert [name for name in COLUMNS if f"`{name}`" not in table] == []
