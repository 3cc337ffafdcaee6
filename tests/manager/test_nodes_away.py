"""Unreachable nodes of an allocation in the replies of a manager."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qcg.pilotjob.cli.commands import status
from qcg.pilotjob.cli.commands.resources import away_lines, host_lines
from qcg.pilotjob.core.events import HostUnreachable, NodesLost
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.why import why_under_way
from qcg.pilotjob.description.model import Amount, Execution, JobDescription, ResourceRequest
from qcg.pilotjob.executors.base import HostState
from qcg.pilotjob.interfaces.handlers.resources_info import resources
from qcg.pilotjob.report.formats import timestamp
from tests.core.core_driver import CoreDriver, job, machine


def have(driver: CoreDriver, allocation: str = "7", **hosts: HostState) -> dict[str, Any]:
    engine = SimpleNamespace(
        state=driver.core.state,
        site=SimpleNamespace(allocation=allocation),
        executor=SimpleNamespace(host_states=lambda: hosts),
    )
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


def test_remote_hosts_are_listed_beside_the_nodes_of_the_run():
    hosts = [
        NodeSpec("wizard", (0, 1, 2), group="wizard"),
        NodeSpec("cluster", (0, 1), group="cluster", slots=True),
    ]
    driver = CoreDriver([*machine(4), *hosts], available=False)
    driver.report("n1", "wizard")
    request = ResourceRequest(Amount(2, 2), host="wizard")
    driver.submit(JobDescription("a", Execution(exec="true"), request))
    driver.schedule()
    driver.handle(HostUnreachable(["wizard"], "Connection refused"))
    since = timestamp(driver.now)
    away = HostState("unreachable", driver.now, "wizard", error="Connection refused")
    found = have(driver, wizard=away, cluster=HostState("unused"))
    assert {key: value for key, value in found.items() if key != "hosts"} == {
        "total_nodes": 1,
        "total_cores": 4,
        "used_cores": 0,
        "free_cores": 4,
    }
    assert found["hosts"] == {
        "wizard": {
            "cores": 3,
            "used": 2,
            "free": 0,
            "state": "unreachable",
            "since": since,
            "error": "Connection refused",
        },
        "cluster": {"cores": 2, "used": 0, "free": 0, "state": "unused", "slots": True},
    }
    assert host_lines(found["hosts"]) == [
        f"host wizard: 2 of 3 cores used; unreachable since {since[:19]}: Connection refused",
        "host cluster: 0 of 2 job slots used; not used yet",
    ]
