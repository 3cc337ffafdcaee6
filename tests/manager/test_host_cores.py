"""Counts of used cores and running jobs, with prefilled jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.events import AttemptEnded, HostReported
from qcg.pilotjob.host.records import Ended, Running
from qcg.pilotjob.interfaces.handlers.resources_info import resources
from qcg.pilotjob.report.progress import progress_line
from tests.core.core_driver import CoreDriver, job, machine, reported_grant
from tests.core.restart import resume, save_state


def have(state: CoreState, system_cores: int = 0) -> dict[str, Any]:
    engine = SimpleNamespace(state=state, site=SimpleNamespace(allocation=""))
    return resources(SimpleNamespace(engine=engine, system_cores=system_cores))  # type: ignore[arg-type]


def use(state: CoreState) -> tuple[int, int]:
    """(used, free)."""
    found = have(state)
    assert found["used_cores"] + found["free_cores"] == found["total_cores"]
    return found["used_cores"], found["free_cores"]


@pytest.fixture
def ahead() -> CoreDriver:
    """One of a hundred short jobs has ended, and the others share both cores of n1 one after another."""
    driver = CoreDriver(machine(2))
    driver.submit(job("it", its=100))
    driver.schedule()
    run = driver.attempt("it:0")
    driver.handle(AttemptEnded(Ended(run.id, driver.now, 0, "exit", "", 7, driver.now - 0.001)))
    driver.schedule()
    assert len(driver.core.state.attempts) > 10
    return driver


def test_a_prefilled_attempt_has_no_cores_and_does_not_run(ahead: CoreDriver):
    state = ahead.core.state
    assert use(state) == (2, 0)
    assert progress_line(state).endswith("1 of 100 iterations done, 0 running, 2 of 2 cores busy")
    ahead.start("it:1")
    assert progress_line(state).endswith("1 running, 2 of 2 cores busy")


def test_cores_of_successive_attempts_in_a_lane_are_counted_once(ahead: CoreDriver):
    """A new manager receives queued launches before it learns the owner of the cores."""
    state = ahead.core.state
    core, _ = resume(save_state(state), machine(2), ahead.now, rerun_lost=False)
    assert use(core.state) == (2, 0)
    live = [Running(run.id, 0, 0.0, reported_grant(run.grant)) for run in core.state.attempts.values()]
    core.handle(HostReported(["n1"], live), ahead.now)
    assert use(core.state) == (2, 0)
    assert core.state.executing == 0


def test_attempts_on_missing_cores_use_no_cores_of_the_run():
    driver = CoreDriver(machine(3))
    driver.submit(job("it", its=3))
    driver.schedule()
    driver.start("it:0", "it:1", "it:2")
    core, _ = resume(save_state(driver.core.state), machine(2), driver.now, rerun_lost=False, fallback_node="n1")
    core.handle(HostReported(["n1"], [driver.running("it:1"), driver.running("it:2")]), driver.now)
    assert use(core.state) == (1, 1)
    assert core.state.executing == 2


def test_the_system_core_counts_as_used(ahead: CoreDriver):
    assert have(ahead.core.state, system_cores=1) == {
        "total_nodes": 1,
        "total_cores": 3,
        "used_cores": 3,
        "free_cores": 0,
    }


def test_running_counts_started_attempts():
    driver = CoreDriver(machine(4))
    state = driver.core.state
    driver.submit(job("a", 2), job("b"))
    driver.schedule()
    assert progress_line(state) == "0 of 2 jobs done, 0 running, 3 of 4 cores busy"
    driver.start("a")
    assert progress_line(state) == "0 of 2 jobs done, 1 running, 3 of 4 cores busy"
    driver.end("a")
    assert progress_line(state) == "1 of 2 jobs done, 0 running, 1 of 4 cores busy"
