"""Nodes of an allocation that are not there, as those see it who ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.cli.commands import status
from qcg.pilotjob.cli.commands.resources import away_lines
from qcg.pilotjob.core.events import HostUnreachable, NodesLost
from qcg.pilotjob.core.why import why_under_way
from qcg.pilotjob.interfaces.handlers.resources_info import resources
from qcg.pilotjob.report.formats import timestamp
from tests.core.core_driver import CoreDriver, job, machine


def have(driver: CoreDriver, allocation: str = "7") -> dict[str, Any]:
    engine = SimpleNamespace(state=driver.core.state, site=SimpleNamespace(allocation=allocation))
    return resources(SimpleNamespace(engine=engine, system_cores=0))  # type: ignore[arg-type]


@pytest.fixture
def driver() -> CoreDriver:
    """Three of the four cores of n1 and all of n2 are in use."""
    driver = CoreDriver(machine(4, 2, 2))
    driver.submit(job("a", 3), job("b", 2, nodes=1))
    driver.schedule()
    driver.start("a")
    driver.start("b")
    return driver


def test_a_node_that_is_away_or_lost_is_named_and_has_no_free_cores(driver: CoreDriver):
    all_there = {"total_nodes": 3, "total_cores": 8, "used_cores": 5, "free_cores": 3}
    assert have(driver) == all_there
    driver.handle(HostUnreachable(["n1"]))
    since = timestamp(driver.now)
    away = {"state": "away", "since": since, "cores": 4}
    assert have(driver) == {**all_there, "free_cores": 2, "away": {"n1": away}}
    driver.handle(NodesLost(["n1"], "node lost"))
    found = have(driver)
    assert (found["used_cores"], found["free_cores"], found["away"]["n1"]["state"]) == (2, 2, "lost")
    assert away_lines(found["away"]) == [f"n1 is lost since {since[:19]}, with 4 cores"]


def test_without_an_allocation_no_node_is_away(driver: CoreDriver):
    driver.handle(HostUnreachable(["n1"]))
    assert "away" not in have(driver, "")


def test_cores_of_nodes_that_are_away_do_not_count_in_the_overview(
    driver: CoreDriver, capsys: pytest.CaptureFixture[str]
):
    driver.handle(HostUnreachable(["n1"]))
    found = have(driver)
    shown = {"TotalNodes": 3, "TotalCores": 8, "UsedCores": 5, "FreeCores": found["free_cores"], "Away": found["away"]}
    status._show_manager({"InstanceId": "x", "Host": "h", "Started": "then", "Wd": "/wd"}, shown)
    said = capsys.readouterr().out.splitlines()
    assert said[1:3] == [
        "2 of 4 cores on 2 nodes in use",
        f"n1 is away since {timestamp(driver.now)[:19]}, with 4 cores",
    ]


def test_the_reason_of_a_job_names_its_unreachable_node(driver: CoreDriver):
    run = driver.core.state.jobs["a"].attempt
    assert run is not None
    reason = why_under_way(run, "noon", None, {"n1": "one o'clock"})
    assert reason.kind == "running"
    assert (
        reason.sentence
        == f"it was running on {run.grant} since noon (pid {run.pid}); no contact to n1 (since one o'clock)"
    )
    assert reason.details["away"] == ["n1"]
