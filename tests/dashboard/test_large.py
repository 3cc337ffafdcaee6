"""A dashboard of a run with a million attempts: memory, and the time of each answer. The short tier uses a tenth."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.runs.rundir import PREFIX
from tests.support.dashboard import Dashboard
from tests.support.large_registry import Shape, write_registry
from tests.support.tiers import per_tier

ATTEMPTS = per_tier(100_000, 1_000_000)
MEGABYTES = 300
FIRST_PAINT = 2.0
SECONDS = 0.2
"""Seconds of processor time: other load of the machine must not count."""


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_million_attempts_are_shown_in_little_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_dir = tmp_path / f"{PREFIX}large"
    run_dir.mkdir(mode=0o700)
    write_registry(run_dir / FILE_NAME, Shape(ATTEMPTS))
    with Dashboard(tmp_path) as dashboard:

        def ask(path: str, **parameters: object) -> tuple[float, dict[str, object]]:
            before = computed(dashboard)
            reply = dashboard.get(path, **parameters)
            assert reply.status == 200, reply
            return computed(dashboard) - before, reply.json

        first_paint = sum(ask(path)[0] for path in ("api/summary", "api/jobs"))
        _, timeline = ask("api/timeline")  # waits until it is built
        begin, end = float(str(timeline["begin"])), float(str(timeline["end"]))
        middle = (begin + end) / 2
        questions: list[tuple[str, dict[str, object]]] = [
            ("api/summary", {}),
            ("api/jobs", {"first": ATTEMPTS // 4}),
            ("api/jobs", {"search": "99"}),
            ("api/jobs", {"job": "sweep", "first": ATTEMPTS // 4}),
            ("api/jobs", {"job": "sweep", "state": "FAILED"}),
            ("api/job", {"name": "job1000"}),
            ("api/job", {"name": f"sweep:{ATTEMPTS // 3}"}),
            ("api/timeline", {"width": 1600, "count": 60}),
            ("api/timeline", {"width": 1600, "count": 60, "first": middle, "last": middle + 1000}),
            ("api/timeline", {"width": 1600, "count": 60, "first": middle, "last": middle + 20}),
            ("api/timeline", {"width": 1600, "level": "node"}),
            ("api/usage", {"bins": 800}),
            ("metrics", {}),
        ]
        # Twice: the first requests build the caches.
        took = {}
        for path, parameters in questions * 2:
            question = (path, *parameters.values())
            before = computed(dashboard)
            assert dashboard.get(path, **parameters).status == 200
            took[question] = computed(dashboard) - before
        slow = {}
        for sort in ("started", "duration", "memory", "state"):
            slow[sort], _ = ask("api/jobs", sort=sort, descending="1")
        memory = dashboard.memory()
    with capsys.disabled():
        print(
            f" [{ATTEMPTS} attempts: first paint {first_paint:.2f} s, slowest answer {max(took.values()):.3f} s,"
            f" sorted {max(slow.values()):.3f} s, {memory:.0f} MB] ",
            end="",
        )
    assert first_paint < FIRST_PAINT
    assert max(took.values()) < SECONDS, took
    assert max(slow.values()) < 2.5 * SECONDS, slow
    assert memory < MEGABYTES


def computed(dashboard: Dashboard) -> float:
    """Seconds of processor time that the dashboard has used so far."""
    return time.clock_gettime((~dashboard.process.pid << 3) | 2)  # the clock of another process
