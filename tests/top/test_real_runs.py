"""The terminal view of real runs: live, with a manager that ends and comes back, and with 500,000 jobs."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from qcg.pilotjob.journal import commit_group
from tests.journal.samples import spec
from tests.support.large_registry import BEGAN, Shape, write_registry
from tests.support.pilot import COMMANDS, job, run_requests
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.serving import Served, served

SIZES = [(80, 24), (200, 50)]
SEPARATE_JOBS = 500_000
ATTEMPTS = 4000
LOADING = 60.0


@contextmanager
def top(directory: Path, size: tuple[int, int] = (80, 24)) -> Iterator[PseudoTerminal]:
    with PseudoTerminal([sys.executable, *COMMANDS["qcg-pm"], "top", str(directory)], size) as terminal:
        yield terminal


def test_a_real_job_is_cancelled(tmp_path: Path):
    with served(tmp_path, "--nodes", "2x2") as service:
        service.submit(job("endless", "sleep", "1000"), job("other", "sleep", "1000"))
        service.wait("endless", "EXECUTING")
        with top(tmp_path) as terminal:
            terminal.wait_for("● live", "▸ 2 running")
            terminal.press("2", "/", *"endless", "enter")
            terminal.wait_for("filter: endless", "1 of 1", "EXECUTING")
            terminal.press("c")
            terminal.wait_for("Cancel endless?")
            terminal.press("y")
            terminal.wait_for("⊘  endless", "CANCELED")
            terminal.press("q")
            assert terminal.wait_for_exit() == 0
            assert terminal.restored
        service.wait("endless", "CANCELED")
        service.wait("other", "EXECUTING")


def is_held(service: Served, name: str) -> bool:
    return "heldSince" in service.data("jobStatus", jobNames=[name])["jobs"][name]["data"]


def test_held_jobs_are_released_and_failed_ones_run_again(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        service.submit(job("busy", "sleep", "1000"), job("later", "true"))
        service.submit(job("brittle", "sh", "-c", "test -e repaired || exit 3"))
        service.wait("busy", "EXECUTING")
        with top(tmp_path) as terminal:
            terminal.wait_for("▸ 1 running")
            terminal.press("2", "/", *"later", "enter")
            terminal.wait_for("1 of 1", "QUEUED")
            terminal.press("h", "y")
            terminal.wait_until(lambda text: is_held(service, "later"), "the hold")
            terminal.press("u", "y")
            service.ask("cancelJob", jobName="busy")
            service.wait("later", "SUCCEED")
            service.wait("brittle", "FAILED")
            (tmp_path / "repaired").touch()
            terminal.press("escape", "/", *"brittle", "enter")
            terminal.wait_for("1 of 1", "FAILED", "exit code 3")
            terminal.press("r", "y")
            service.wait("brittle", "SUCCEED")
            terminal.wait_for("✓  brittle")


def test_output_of_a_real_job_is_followed(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service:
        program = "echo first; until test -e go; do sleep 0.05; done; echo second; sleep 1000"
        service.submit(job("talker", "sh", "-c", program, stdout="talker.out"))
        service.wait("talker", "EXECUTING")
        with top(tmp_path) as terminal:
            terminal.press("2")
            terminal.wait_for("▸  talker")
            terminal.press("l")
            terminal.wait_for("stdout of talker", "first", "following")
            (tmp_path / "go").touch()
            terminal.wait_for("second")


def test_a_manager_that_ends_and_one_that_resumes_are_noticed(tmp_path: Path):
    with served(tmp_path, "--nodes", "2") as service:
        service.submit(job("a", "true"), job("b", "sh", "-c", "echo went wrong >&2; exit 7"), job("c", "sleep", "1000"))
        service.wait("b", "FAILED")
        service.wait("c", "EXECUTING")
        with top(tmp_path) as terminal:
            terminal.wait_for("● live", "exit code 7", "went wrong")
            service.kill()
            terminal.wait_for("The manager has ended.", "○ no manager", "exit code 7")
            terminal.press("2")
            terminal.wait_for("FAILED", "1 of 3")
            terminal.press("r")
            terminal.wait_for("has no manager")
            service.resume()
            terminal.wait_for("A manager runs again", "● live")
            terminal.press("q")
            assert terminal.wait_for_exit() == 0


@pytest.mark.parametrize("size", SIZES)
def test_an_ended_run_is_shown(tmp_path: Path, size: tuple[int, int]):
    run_requests(tmp_path, [job("fine", "true"), job("bad", "sh", "-c", "echo no luck; exit 4", iteration=3)])
    with top(tmp_path, size) as terminal:
        terminal.wait_for("○ ended", "100 %  4 of 4", "✗ 3 failed", "exit code 4", "no luck")
        terminal.press("2")
        terminal.wait_for("✗  bad", "3/3", "✓  fine")
        terminal.press("i")
        terminal.wait_for("iterations of bad", "bad:0", "bad:2", "1 of 3")
        terminal.press("enter")
        terminal.wait_for("✗ FAILED  bad:", "Attempts", "Description")


def test_a_removed_run_directory_is_reported_in_one_sentence(tmp_path: Path):
    run_requests(tmp_path, [job("fine", "true")])
    with top(tmp_path, (200, 24)) as terminal:
        terminal.wait_for("100 %  1 of 1")
        shutil.rmtree(next(tmp_path.glob(".qcgpjm-service-*")))
        terminal.press("2")
        terminal.wait_for("The run cannot be read at the moment: There is no registry at")
        terminal.press("q")
        assert terminal.wait_for_exit() == 0
        assert terminal.restored


def test_a_manager_that_does_not_answer_keeps_no_key_waiting(tmp_path: Path):
    with served(tmp_path, "--nodes", "1") as service, top(tmp_path) as terminal:
        service.submit(job("endless", "sleep", "1000"))
        terminal.wait_for("● live", "▸ 1 running")
        service.process.send_signal(signal.SIGSTOP)
        try:
            terminal.press("2")
            terminal.wait_for("▸  endless")
            terminal.press("h", "y", "?")
            terminal.wait_for("Everywhere")
            terminal.press("x", "1", "q")
            assert terminal.wait_for_exit() == 0
            assert terminal.restored
        finally:
            service.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("size", SIZES)
def test_a_run_without_jobs_is_shown(tmp_path: Path, size: tuple[int, int]):
    with served(tmp_path, "--nodes", "1"), top(tmp_path, size) as terminal:
        terminal.wait_for("● live", "There are no jobs yet.", "q quit")
        assert "q quit" in terminal.lines[size[1] - 1]
        terminal.press("2")
        terminal.wait_for("jobs │ all states", "There are no jobs yet.")


@pytest.fixture(scope="module")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory whose registry has 500,000 separate jobs, of which some have run, and one sweep."""
    directory = tmp_path_factory.mktemp("large")
    run_requests(directory, [job("only", "true")])
    registry = next(directory.glob(".qcgpjm-service-*/registry.sqlite"))
    registry.unlink()
    write_registry(registry, Shape(ATTEMPTS))
    ran = ATTEMPTS - ATTEMPTS // 2
    description = spec(1)
    rows = ((seq, f"job{seq}", BEGAN, 0, description) for seq in range(ran + 2, SEPARATE_JOBS + 2))
    with closing(sqlite3.connect(registry)) as connection, connection:
        connection.executemany(commit_group.INSERT_JOB, rows)
    return directory


def fills(lines: int, screen: str) -> bool:
    """Whether the view has its title in the first line and its keys in the last one."""
    shown = screen.split("\n")
    return "qcg-pm top" in shown[0] and "q quit" in shown[lines - 1]


@pytest.mark.parametrize("size", SIZES)
def test_500000_jobs_are_paged_through(large_run: Path, size: tuple[int, int]):
    with top(large_run, size) as terminal:
        terminal.wait_for("of 502,000", "waiting", timeout=LOADING)
        terminal.press("2")
        terminal.wait_for("✗  sweep", "1 of 500,001", timeout=LOADING)
        terminal.press("end")
        terminal.wait_for("500,001 of 500,001", f"job{SEPARATE_JOBS + 1} ", timeout=LOADING)
        terminal.press("pageup")
        row = 500_001 - (size[1] - 5)
        terminal.wait_for(f"{row:,} of 500,001", timeout=LOADING)
        for columns, lines in (next(other for other in SIZES if other != size), (60, 12), size):
            terminal.resize(columns, lines)
            terminal.wait_until(partial(fills, lines), f"a screen of {lines} lines", timeout=LOADING)
            terminal.wait_for(f"{row:,} of 500,001", f"job{row} ", timeout=LOADING)
        terminal.press("/", *"*99999", "enter")
        # Enter opens no job while the rows of the filter are being read.
        terminal.wait_for("filter: *99999", "1 of 5 ", "job499999", absent=["500,001"], timeout=LOADING)
        terminal.press("enter")
        terminal.wait_for("QUEUED", "Description", timeout=LOADING)
        terminal.press("q")
        assert terminal.wait_for_exit() == 0
        assert terminal.restored
