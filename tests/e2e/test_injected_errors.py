"""Any call that touches files fails with EIO, ENOSPC or EROFS: a sentence, no hang, and the run can be continued.

The short tier tries a seeded sample. The long tier tries every call, alone and together with the four calls after it,
with one of the errors each. QCG_PM_ALL_FAULTS=1 tries every call with every error. Failures are reported together.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import queue
import random
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.fault_injection import Faults
from tests.support.pilot import Run, job, run, write_requests
from tests.support.tiers import per_tier

EVERYTHING = os.environ.get("QCG_PM_ALL_FAULTS") == "1"
SEED = 20261117
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)
JOBS = [
    job("a", "/bin/sh", "-c", "echo a >> marks"),
    job("b", "/bin/sh", "-c", "echo b >> marks; exit 1", after=["a"]),
    job("c", "/bin/sh", "-c", "echo c${it} >> marks", iteration=3),
]
MARKS = ["a", "b", "c0", "c1", "c2"]
STATES = {"a": "SUCCEED", "b": "FAILED", "c": "SUCCEED", "c:0": "SUCCEED", "c:1": "SUCCEED", "c:2": "SUCCEED"}
OPTIONS = ("--nodes", "2", "--report-format", "json")
AGENT = "qcg.pilotjob.agent"
NEVER_BEGUN = ("died before it had begun; start anew", "There is no registry at ")
"""The `--resume` error for a run directory in which nothing was stored, and which could not be removed either."""

pytestmark = [pytest.mark.sampled, pytest.mark.timeout(14400 if EVERYTHING else per_tier(300, 5400))]


class Injection(NamedTuple):
    """One experiment: which call fails, with which error, and how many calls after it."""

    call: int
    error: int
    more: int

    def __str__(self) -> str:
        return f"call {self.call}, {errno.errorcode[self.error]}, {self.more} more"


def injections(calls: int, sample: int) -> list[Injection]:
    """The experiments of this tier: a sample in the short one, every call in the long one."""
    everything = [Injection(*each) for each in itertools.product(range(1, calls + 1), ERRORS, (0, 4))]
    if EVERYTHING:
        return everything
    if per_tier(0, 1):
        return [each for each in everything if each.error == ERRORS[(each.call + each.more // 4) % len(ERRORS)]]
    return random.Random(SEED).sample(everything, min(sample, len(everything)))


class Slot:
    """A working directory, and a library to fail calls in it, for one experiment at a time."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.faults = Faults(directory)
        self.wd = directory / "faulty"
        self.renew()

    def renew(self) -> None:
        shutil.rmtree(self.wd, ignore_errors=True)
        self.wd.mkdir()
        write_requests(self.wd / "r.json", JOBS)

    def environment(self, injection: Injection | None, process: str = "") -> dict[str, str]:
        """Without an injection, calls are only counted."""
        if injection is None:
            return self.faults.environment(self.wd.name, process=process)
        call, error, more = injection
        return self.faults.environment(self.wd.name, call, error, more=more, process=process)

    def begin(self, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return run("qcg-pm", "run", self.wd / "r.json", "--wd", self.wd, *OPTIONS, cwd=self.wd, timeout=100, env=env)

    def bring_to_an_end(self, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
        """Resume the run as a user would, now that the disk works again."""
        run_dirs = list(self.wd.glob(".qcgpjm-service-*"))
        if run_dirs:
            again = run("qcg-pm", "run", "--resume", self.wd, cwd=self.wd, timeout=100)
            if not any(sentence in again.stderr for sentence in NEVER_BEGUN):
                return again
            shutil.rmtree(run_dirs[0])
        assert done.returncode == 2, "it has not begun, and says so"
        assert not (self.wd / "marks").exists()
        return self.begin()

    def check_outcome(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 1, done
        assert sorted((self.wd / "marks").read_text().split()) == MARKS, "each job ran once"
        assert Run(self.wd, done).states == STATES


def check_sentence(done: subprocess.CompletedProcess[str]) -> None:
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode in (0, 1, 2, 3, 4, 5), done
    assert done.returncode in (0, 1) or done.stderr.strip()


def inject_all(slots: list[Slot], planned: list[Injection], inject: Callable[[Slot, Injection], None]) -> None:
    """Make all experiments, one at a time in each slot, and report those that failed."""
    free: queue.Queue[Slot] = queue.Queue()
    for slot in slots:
        free.put(slot)

    def experiment(injection: Injection) -> str:
        slot = free.get()
        try:
            inject(slot, injection)
        except (AssertionError, OSError) as failure:
            return f"{injection} ({slot.faults.failed_call()}): {failure}"
        finally:
            free.put(slot)
        return ""

    with ThreadPoolExecutor(len(slots)) as pool:
        failures = [failure for failure in pool.map(experiment, planned) if failure]
    assert not failures, f"{len(failures)} of {len(planned)}\n\n" + "\n\n".join(failures)


@pytest.fixture
def slots(tmp_path: Path) -> list[Slot]:
    return make_slots(tmp_path)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Slot]:
    """Slots with an ended run, which no test changes."""
    slots = make_slots(tmp_path_factory.mktemp("ended"))
    for slot in slots:
        assert slot.begin().returncode == 1
    return slots


def make_slots(directory: Path) -> list[Slot]:
    return [Slot(directory / f"slot{number}") for number in range(per_tier(1, 3))]


@pytest.mark.parametrize(("process", "sample"), [("", 3), (AGENT, 2)], ids=["manager", "agent"])
def test_a_run_survives_any_call_that_fails(slots: list[Slot], process: str, sample: int):
    first = slots[0]
    assert first.begin(first.environment(None, process)).returncode == 1
    calls = first.faults.calls()
    assert calls > 20

    def inject(slot: Slot, injection: Injection) -> None:
        slot.renew()
        done = slot.begin(slot.environment(injection, process))
        try:
            check_sentence(done)
            slot.check_outcome(slot.bring_to_an_end(done))
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{done.stderr}") from failure

    inject_all(slots, injections(calls, sample), inject)


COMMANDS = (
    ["report", "{wd}"],
    ["jobs", "--path", "{wd}"],
    ["info", "c", "--path", "{wd}"],
    ["logs", "b", "--path", "{wd}"],
    ["why", "b", "--path", "{wd}"],
    ["status", "--path", "{wd}"],
    ["runs", "{wd}"],
    ["validate", "{wd}/r.json"],
    ["run", "--resume", "{wd}"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command[:2]) for command in COMMANDS])
def test_commands_survive_any_call_that_fails(ended: list[Slot], command: list[str]):
    def inject(slot: Slot, injection: Injection | None) -> None:
        line = [word.format(wd=slot.wd) for word in command]
        check_sentence(run("qcg-pm", *line, env=slot.environment(injection)))

    inject(ended[0], None)
    calls = ended[0].faults.calls()
    assert calls
    inject_all(ended, injections(calls, 2), inject)
    for slot in ended:
        check_unchanged(slot)


def check_unchanged(slot: Slot) -> None:
    """Resuming the run finds the ends of all jobs, and runs none of them."""
    again = run("qcg-pm", "run", "--resume", slot.wd)
    assert again.returncode == 1
    entries = [json.loads(text)["name"] for text in (slot.wd / "jobs.report").read_text().splitlines()]
    assert sorted(entries) == sorted(STATES)
    assert sorted((slot.wd / "marks").read_text().split()) == MARKS
