"""Working directories that other users can write to: their runs, links and special files are not used."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from qcg.pilotjob.api.client import Manager
from qcg.pilotjob.api.errors import FileError, NoManager
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.commands import dashboard
from qcg.pilotjob.cli.main import main
from qcg.pilotjob.cli.shell_completion import run_directories
from qcg.pilotjob.cluster.spec import AllocationSpec
from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.host.ledger import Ledger, LedgerError
from qcg.pilotjob.journal import schema
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.runs.discovery import find_runs, run_to_resume
from qcg.pilotjob.runs.liveness import has_agents
from qcg.pilotjob.runs.manager_process import has_manager, registry_holder
from qcg.pilotjob.runs.submissions import Submission, free_directory, last_submission, waiting_notices, write_submission
from qcg.pilotjob.runs.unfinished import count_unfinished
from tests.support.pilot import job, run, start, write_requests
from tests.support.second_user import NAME, UID, give_away, irregular_files, needs_root, run_as_second_user
from tests.support.waiting import wait_for

pytestmark = needs_root

GATE = "until [ -e go ]; do sleep 0.02; done"
FILES = ["contact.json", "registry.sqlite", "registry.sqlite-wal", "agent-local.json", "agent-local.ledger"]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, where every user can create files. Other users cannot enter the directories of pytest."""
    with tempfile.TemporaryDirectory(prefix="qcg-pm-test-") as place:
        Path(place).chmod(0o755)
        directory = Path(place, "shared")
        directory.mkdir()
        directory.chmod(0o1777)
        monkeypatch.chdir(directory)
        yield directory
        monkeypatch.undo()


def pm(*arguments: str | Path) -> Result:
    """Run a command in this process; a command that hangs is interrupted."""

    def end(number: int, frame: object) -> None:
        raise AssertionError(f"qcg-pm {arguments} hung")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    try:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="qcg-pm")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_dir_in(wd: Path, name: str, *, age: float = 0) -> Path:
    """An empty run directory of this age in seconds."""
    directory = wd / f".qcgpjm-service-{name}"
    directory.mkdir(mode=0o700)
    os.utime(directory, (1e9 - age, 1e9 - age))
    return directory


# -- runs of other users ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def left_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose manager was killed before its last job, which writes a file, could start."""
    wd = tmp_path_factory.mktemp("left")
    jobs = [job("gate", "bash", "-c", GATE, stdout="gate.out"), job("a", "touch", "ran", after=["gate"])]
    path = write_requests(wd / "r.json", jobs)
    with start("qcg-pm", "run", path, "--wd", wd, "--nodes", "2", "--id", "left", "--agent-linger", "0") as manager:
        wait_for(lambda: (wd / "gate.out").exists(), what="the first job")
        manager.kill()
        manager.communicate()
    (wd / "go").touch()
    run_dir = wd / ".qcgpjm-service-left"
    wait_for(lambda: not (run_dir / "agent-local.json").exists(), what="the agent to end")
    return run_dir


def copy_of(run_dir: Path, wd: Path, name: str) -> Path:
    return shutil.copytree(run_dir, wd / f".qcgpjm-service-{name}")


def test_resuming_in_a_shared_directory_runs_no_jobs_of_another_user(shared: Path, left_run: Path):
    theirs = give_away(copy_of(left_run, shared, "theirs"))
    done = run("qcg-pm", "run", "--resume", ".", cwd=shared)
    assert done.returncode == 2
    assert f"Skipped {theirs}: it belongs to {NAME}" in done.stderr
    assert sorted(os.listdir(shared)) == [theirs.name]


def test_resuming_skips_a_newer_run_of_another_user(shared: Path, left_run: Path):
    mine = copy_of(left_run, shared, "mine")
    theirs = give_away(copy_of(left_run, shared, "theirs"))
    os.utime(mine, (1, 1))
    done = run("qcg-pm", "run", "--resume", ".", cwd=shared)
    assert done.returncode == 0, done.stderr
    assert (shared / "ran").exists()
    assert f"Skipped {theirs}: it belongs to {NAME}." in done.stderr.splitlines()
    assert str(mine) in done.stdout


def test_a_run_of_another_user_is_not_resumed_by_its_path_either(shared: Path, left_run: Path):
    theirs = give_away(copy_of(left_run, shared, "theirs"))
    for command in ("qcg-pm", "qcg-pm-service"):
        arguments = ["run"] if command == "qcg-pm" else ["--net"]
        done = run(command, *arguments, "--resume", theirs, cwd=shared)
        assert done.returncode == 2
        assert f"{theirs} cannot be used: it belongs to {NAME}" in done.stderr


def test_a_registry_of_another_user_in_an_own_directory_is_not_opened(shared: Path, left_run: Path):
    mine = copy_of(left_run, shared, "mine")
    give_away(mine / "registry.sqlite")
    done = run("qcg-pm", "run", "--resume", mine, cwd=shared)
    assert done.returncode == 2
    assert f"{mine}/registry.sqlite cannot be used: it belongs to {NAME}" in done.stderr


def test_a_registry_that_is_replaced_while_it_is_opened_is_not_used(
    shared: Path, left_run: Path, monkeypatch: pytest.MonkeyPatch
):
    mine = copy_of(left_run, shared, "mine")

    def replaced(path: Path, connect: Callable[[Path], sqlite3.Connection] = schema.connect) -> sqlite3.Connection:
        give_away(mine)
        return connect(path)

    monkeypatch.setattr(schema, "connect", replaced)
    with pytest.raises(JournalError, match=f"it belongs to {NAME}"):
        Journal.open(mine / "registry.sqlite")


def test_runs_that_other_users_can_write_to_are_skipped(shared: Path):
    open_run = run_dir_in(shared, "open")
    open_run.chmod(0o777)
    found = find_runs(shared)
    assert found.own == []
    assert found.notices() == [f"Skipped {open_run}: other users can write to it (chmod go-w makes it yours alone)."]
    with pytest.raises(UsageError, match="other users can write to it"):
        run_to_resume(shared)


@pytest.mark.parametrize("command", ["runs", "clean"])
def test_runs_of_another_user_are_neither_listed_nor_removed(shared: Path, left_run: Path, command: str):
    mine = copy_of(left_run, shared, "mine")
    theirs = give_away(copy_of(left_run, shared, "theirs"))
    done = pm(command, *(["--all", "--yes"] if command == "clean" else []))
    assert done.exit_code == 0, done.output
    assert mine.name in done.stdout
    assert theirs.name not in done.stdout
    assert f"Skipped {theirs}: it belongs to {NAME}." in done.stderr
    assert theirs.exists()


def test_a_link_of_another_user_to_an_own_run_is_skipped(shared: Path, tmp_path: Path):
    run_dir_in(tmp_path, "mine")
    link = shared / ".qcgpjm-service-link"
    link.symlink_to(tmp_path / ".qcgpjm-service-mine")
    assert find_runs(shared).own == [link]
    give_away(link)
    assert find_runs(shared).notices() == [f"Skipped {link}: it belongs to {NAME}."]


def test_only_some_of_many_runs_of_other_users_are_named(shared: Path):
    for number in range(5):
        give_away(run_dir_in(shared, f"theirs{number}"))
    notices = find_runs(shared).notices()
    assert len(notices) == 4
    assert notices[-1] == "Skipped 2 more runs of other users."


def test_completion_offers_own_runs_alone_and_no_name_that_a_shell_would_run(shared: Path):
    mine = run_dir_in(shared, "mine")
    run_dir_in(shared, "$(touch ran)")
    give_away(run_dir_in(shared, "theirs"))
    context = click.Context(click.Command("report"))
    offered = run_directories(context, click.Argument(["directory"]), f"{shared}/")
    assert [item.value for item in offered] == [str(mine)]


def test_files_of_a_run_that_lie_in_a_shared_directory_itself_do_not_make_it_a_run(shared: Path):
    for name in FILES:
        give_away(_touched(shared / name))
    mine = run_dir_in(shared, "mine")
    assert find_runs(shared).own == [mine]


def _touched(path: Path) -> Path:
    path.touch(0o600)
    return path


def test_two_users_work_in_one_directory_without_seeing_each_others_runs(shared: Path, left_run: Path):
    """The other user has its own process here; root is the owner of the interrupted run."""
    roots = copy_of(left_run, shared, "roots")
    (shared / "service.log").symlink_to(roots / "service.log")
    path = write_requests(shared / "r.json", [job("a", "true")])
    done = run_as_second_user(shared, "run", str(path), "--cores", "1", "--id", "theirs", "--share-cores")
    assert done.returncode == 0, done.stderr
    theirs = shared / ".qcgpjm-service-theirs"
    assert theirs.stat().st_uid == UID
    assert "the link" in (theirs / "service.log").read_text()
    assert os.readlink(shared / "service.log") == str(roots / "service.log")
    listed = run_as_second_user(shared, "jobs")
    assert listed.stdout.splitlines() == ["name  state", "a     SUCCEED"]
    assert f"Skipped {roots}: it belongs to user root." in listed.stderr
    refused = run_as_second_user(shared, "run", "--resume", str(roots))
    assert refused.returncode == 2
    assert f"{roots} cannot be used: it belongs to user root" in refused.stderr
    done = run("qcg-pm", "run", "--resume", ".", cwd=shared)
    assert done.returncode == 0, done.stderr
    assert f"Skipped {theirs}: it belongs to {NAME}." in done.stderr.splitlines()


def test_a_second_user_cannot_submit_to_the_manager_of_root(served: LocalManager):
    run_dir = Path(served.qcgpm_conf["run_dir"])
    done = run_as_second_user(run_dir.parent, "submit", "--", "true")
    assert done.returncode == 2
    assert f"Skipped {run_dir}: it belongs to user root." in done.stderr
    assert list(served.list()) == ["a"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalManager]:
    with LocalManager(["--nodes", "n1:2", "--wd", tmp_path_factory.mktemp("served")], {"log_file": ""}) as manager:
        manager.send_request({"request": "submit", "jobs": [job("a", "true")]})
        manager.wait4all()
        yield manager


@contextmanager
def another_users(run_dir: Path) -> Iterator[None]:
    give_away(run_dir)
    try:
        yield
    finally:
        give_away(run_dir, 0)


COMMANDS = [
    "submit -- true",
    "jobs",
    "status",
    "resources",
    "wait",
    "info a",
    "why a",
    "logs a",
    "cat-log a",
    "cancel a",
    "kill a",
    "hold a",
    "release a",
    "set a --priority 1",
    "rerun a",
    "remove a",
    "poll",
    "nodes drain n1",
    "nodes resume n1",
    "finish",
]
"""Command lines that need a manager, or use one that runs."""


def with_option(line: str, *option: str) -> list[str]:
    """The words of a command line, with an option right after the command."""
    words = line.split()
    command = 2 if words[0] == "nodes" else 1
    return [*words[:command], *option, *words[command:]]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_command_talks_to_the_manager_of_another_user(
    served: LocalManager, line: str, monkeypatch: pytest.MonkeyPatch
):
    run_dir = Path(served.qcgpm_conf["run_dir"])
    monkeypatch.chdir(run_dir.parent)
    with another_users(run_dir):
        done = pm(*line.split())
        named = pm(*with_option(line, "--path", str(run_dir)))
        addressed = pm(*with_option(line, "--address", served.qcgpm_conf["address"]))
    refused = 1 if line.startswith("cat-log") else 2  # before it connects: it needs the run directory
    assert (done.exit_code, named.exit_code, addressed.exit_code) == (2, 2, refused)
    assert f"Skipped {run_dir}: it belongs to {NAME}." in done.stderr
    assert f"{run_dir} cannot be used: it belongs to {NAME}" in named.stderr
    assert list(served.list()) == ["a"]


def test_the_dashboard_does_not_serve_the_run_of_another_user(served: LocalManager, monkeypatch: pytest.MonkeyPatch):
    run_dir = Path(served.qcgpm_conf["run_dir"])
    monkeypatch.chdir(run_dir.parent)
    with another_users(run_dir):
        done, named = pm("dashboard"), pm("dashboard", "--path", run_dir)
    assert (done.exit_code, named.exit_code) == (2, 2)
    assert f"Skipped {run_dir}: it belongs to {NAME}" in done.stderr
    assert f"{run_dir} cannot be used: it belongs to {NAME}" in named.stderr


def test_programs_do_not_find_the_manager_of_another_user(served: LocalManager, monkeypatch: pytest.MonkeyPatch):
    run_dir = Path(served.qcgpm_conf["run_dir"])
    monkeypatch.chdir(run_dir.parent)
    with another_users(run_dir):
        with pytest.raises(NoManager, match=f"Skipped {run_dir}: it belongs to {NAME}."):
            Manager()
        with pytest.raises(NoManager, match=f"{run_dir} cannot be used: it belongs to {NAME}"):
            Manager.of_run(run_dir)


def test_the_contact_file_of_another_user_is_not_used(served: LocalManager, monkeypatch: pytest.MonkeyPatch):
    run_dir = Path(served.qcgpm_conf["run_dir"])
    monkeypatch.chdir(run_dir.parent)
    with another_users(run_dir / "contact.json"):
        done = pm("jobs")
    assert done.exit_code == 2
    assert f"{run_dir}/contact.json cannot be used: it belongs to {NAME}" in done.stderr


# -- reading another user's run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wd = tmp_path_factory.mktemp("ended")
    jobs = [job("good", "true"), job("bad", script="echo private >&2; exit 3", stderr="bad.err")]
    run("qcg-pm", "run", write_requests(wd / "r.json", jobs), "--wd", wd, "--nodes", "2", "--id", "ended")
    return wd / ".qcgpjm-service-ended"


def test_the_report_on_a_run_of_another_user_can_be_read_when_it_is_named(
    shared: Path, ended_run: Path, monkeypatch: pytest.MonkeyPatch
):
    theirs = give_away(copy_of(ended_run, shared, "theirs"))
    monkeypatch.setenv("TMPDIR", str(shared / "nowhere"))  # nothing is copied
    done = pm("report", theirs)
    assert done.exit_code == 0, done.output
    assert "bad FAILED: exit code 3" in done.stdout
    assert "private" not in done.stdout
    assert f"Note: {theirs} is not your run: it belongs to {NAME}." in done.stderr
    done = pm("report", shared)
    assert done.exit_code == 2
    assert f"Skipped {theirs}: it belongs to {NAME}" in done.stderr


def test_a_registry_of_another_user_that_is_not_closed_is_not_copied(shared: Path, left_run: Path):
    theirs = give_away(copy_of(left_run, shared, "theirs"))
    assert (theirs / "registry.sqlite-wal").stat().st_size
    done = pm("report", theirs)
    assert done.exit_code == 2
    assert "its manager has not closed it, and only its owner can read it before" in done.stderr


def test_a_registry_of_another_user_cannot_keep_a_command_busy(shared: Path, ended_run: Path):
    theirs = copy_of(ended_run, shared, "theirs")
    with closing(sqlite3.connect(theirs / "registry.sqlite")) as connection:
        connection.executescript(
            "DROP VIEW jobs; CREATE VIEW jobs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT * FROM submitted_jobs WHERE seq IN n; PRAGMA wal_checkpoint(TRUNCATE);"
        )
    give_away(theirs)
    done = pm("report", theirs)
    assert done.exit_code == 2
    assert "is no registry of this version" in done.stderr


def test_a_sparse_registry_of_another_user_is_no_registry(shared: Path):
    theirs = run_dir_in(shared, "theirs")
    _sparse(theirs / "registry.sqlite")
    give_away(theirs)
    done = pm("report", theirs)
    assert done.exit_code == 2
    assert "registry" in done.stderr


# -- odd files --------------------------------------------------------------------------------------------------------


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 << 30)
    path.chmod(0o600)


@pytest.mark.parametrize("name", FILES)
def test_no_command_hangs_on_odd_files_of_a_run(
    shared: Path, left_run: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    # The dashboard ends as soon as it has printed its address.
    monkeypatch.setattr(dashboard, "awaiting_signal", lambda: nullcontext(lambda: None))
    mine = copy_of(left_run, shared, "mine")
    place = mine / name
    place.unlink(missing_ok=True)
    for _ in irregular_files(place):
        _look_at_everything(mine)
    _sparse(place)
    _look_at_everything(mine)


def _look_at_everything(run_dir: Path) -> None:
    for line in (*COMMANDS, "report", "dashboard"):
        done = pm(*line.split())
        # The job has never started: commands that show its output are refused with 1.
        assert done.exit_code in ((0, 1, 2) if "log" in line.split()[0] else (0, 2)), line
        assert isinstance(done.exception, SystemExit | None), line
    for look in (has_manager, count_unfinished, has_agents, registry_holder, run_to_resume):
        look(run_dir)


@pytest.mark.parametrize("name", [*FILES, "jobs.report", "service.log"])
def test_a_run_with_an_odd_file_is_resumed_or_refused_and_never_hangs(shared: Path, left_run: Path, name: str):
    mine = copy_of(left_run, shared, "mine")
    (mine / name).unlink(missing_ok=True)
    os.mkfifo(mine / name, 0o600)
    done = run("qcg-pm", "run", "--resume", mine, cwd=shared)
    if name == "agent-local.json":
        assert done.returncode == 0, done.stderr
        assert f"ignored {mine}/agent-local.json: it is a named pipe" in (mine / "service.log").read_text()
    else:
        assert done.returncode in (2, 3, 4), done.stderr
        assert "a named pipe" in done.stderr + (mine / "agent-local.log").read_text()
        assert "Traceback" not in done.stderr


def test_a_ledger_that_is_no_regular_own_file_is_not_opened(tmp_path: Path):
    path = tmp_path / "agent-n1.ledger"
    for kind in irregular_files(path):
        with pytest.raises(LedgerError, match=kind):
            Ledger(str(path))
    _sparse(path)
    with pytest.raises(LedgerError, match="more than"):
        Ledger(str(path))
    path.write_bytes(b"")
    give_away(path)
    with pytest.raises(LedgerError, match=f"it belongs to {NAME}"):
        Ledger(str(path))


def test_no_command_hangs_on_an_odd_request_file(shared: Path):
    place = shared / "requests.json"
    for kind in irregular_files(place):
        if kind != "a symbolic link":
            done = run("qcg-pm", "validate", place, cwd=shared)
            assert done.returncode == 2, kind
            assert kind in done.stderr
    _sparse(place)
    done = run("qcg-pm", "validate", place, cwd=shared)
    assert done.returncode == 2
    assert "it has more than the 1024 MiB that are read" in done.stderr


# -- links in the working directory -----------------------------------------------------------------------------------


def test_links_of_another_user_are_left_alone_and_never_written_through(shared: Path):
    precious = shared.parent / ".qcgpjm-service-precious"
    precious.mkdir()
    for name in ("service.log", "jobs.report"):
        (precious / name).write_text("precious")
        (shared / name).symlink_to(precious / name)
        give_away(shared / name)
    path = write_requests(shared.parent / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", path, "--nodes", "2", "--id", "mine", cwd=shared)
    assert done.returncode == 0, done.stderr
    for name in ("service.log", "jobs.report"):
        assert (precious / name).read_text() == "precious"
        assert os.lstat(shared / name).st_uid == UID
        assert (shared / ".qcgpjm-service-mine" / name).stat().st_size
    log = (shared / ".qcgpjm-service-mine" / "service.log").read_text()
    assert f"the link {shared}/service.log is not changed: it belongs to {NAME}" in log


def test_a_report_is_not_written_through_a_link_of_another_user(shared: Path):
    precious = shared.parent / "precious"
    precious.write_text("precious")
    (shared / "mine.report").symlink_to(precious)
    give_away(shared / "mine.report")
    path = write_requests(shared.parent / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", path, "--nodes", "2", "--report-file", shared / "mine.report", cwd=shared)
    assert done.returncode == 2
    assert f"it is a symbolic link that belongs to {NAME}" in done.stderr
    assert precious.read_text() == "precious"


def test_the_log_of_a_client_is_not_written_through_a_link_of_another_user(served: LocalManager, shared: Path):
    precious = shared.parent / "precious"
    precious.write_text("precious")
    (shared / "api.log").symlink_to(precious)
    give_away(shared / "api.log")
    with pytest.raises(FileError, match=f"it is a symbolic link that belongs to {NAME}"):
        Manager.of_run(served.qcgpm_conf["run_dir"], {"log_file": "api.log"})
    assert precious.read_text() == "precious"


# -- batch jobs -------------------------------------------------------------------------------------------------------


def test_submissions_of_another_user_give_no_options_to_a_batch_job(shared: Path):
    mine = run_dir_in(shared, "mine")
    theirs = free_directory(mine)
    write_submission(theirs, Submission("1", str(mine), AllocationSpec(extra_options=["--wrap=evil"])))
    assert last_submission(mine) is not None
    give_away(theirs)
    assert last_submission(mine) is None
    assert waiting_notices(shared, {}) == []
    assert free_directory(mine) != theirs
