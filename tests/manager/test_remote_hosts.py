"""Requests about remote hosts: the executor knows their states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qcg.pilotjob.executors.base import HostState
from qcg.pilotjob.executors.composite import CompositeExecutor
from qcg.pilotjob.interfaces.dispatch import answer
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.formats import timestamp
from tests.executors.fake_agents import NotingObserver
from tests.manager.wired import MemoryHosts, Wired, jobs, run

AWAY = HostState("unreachable", 1_700_000_000.0, "login1", error="it does not answer; see qcg-pm hosts check wizard")


async def ask(wired: Wired, request: dict[str, Any]) -> dict[str, Any]:
    reply = await answer(Manager(wired.engine, "x"), json.dumps(request).encode())
    return reply.to_dict()


def test_hosts_are_listed_with_their_states(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.executor.remote = {"wizard": AWAY, "citadel": HostState("unused")}
        assert (await ask(wired, {"request": "hosts"}))["data"]["hosts"] == {
            "wizard": {
                "state": "unreachable",
                "since": timestamp(AWAY.since),
                "address": "login1",
                "error": AWAY.error,
            },
            "citadel": {"state": "unused"},
        }

    run(tmp_path, test)


def test_a_host_is_tried_again_on_request(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.executor.remote = {"wizard": AWAY}
        reply = await ask(wired, {"request": "connectHost", "host": "wizard"})
        assert reply == {"code": 0, "message": "wizard is tried again now"}
        assert "reconnect wizard" in wired.happened

    run(tmp_path, test)


def test_jobs_of_a_host_that_was_given_up_are_lost(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.reported()
        wired.executor.connect("wizard")
        await wired.engine.submit(jobs("a", remote={"host": "wizard"}))
        wired.executor.disconnect("wizard")
        wired.executor.remote = {"wizard": AWAY}
        assert (await ask(wired, {"request": "forgetHost", "host": "wizard"}))["data"] == {"lost": 1}
        assert "forget wizard" in wired.happened
        assert wired.engine.state.jobs["a"].state.name == "FAILED"

    run(tmp_path, test, {"local": ["n0"], "wizard": ["wizard"]}, remote=["wizard"])


def test_a_connected_host_is_not_given_up(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.executor.remote = {"wizard": HostState("connected")}
        reply = await ask(wired, {"request": "forgetHost", "host": "wizard"})
        assert reply["message"].startswith("wizard is connected, and only an unreachable host can be given up")
        assert "forget wizard" not in wired.happened

    run(tmp_path, test)


def test_a_request_for_an_unknown_host_is_refused_with_the_nearest_name(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.executor.remote = {"wizard": AWAY}
        reply = await ask(wired, {"request": "connectHost", "host": "wizzard"})
        assert reply["code"] == 1
        assert reply["message"] == 'this run has no remote host "wizzard"; did you mean "wizard"?'
        assert (await ask(wired, {"request": "connectHost"}))["code"] == 1

    run(tmp_path, test)


def test_several_executors_together_know_all_hosts() -> None:
    sent: list[str] = []
    made = []

    def factory(observer: Any, hosts: dict[str, list[str]]) -> MemoryHosts:
        made.append(MemoryHosts(observer, hosts, sent))
        return made[-1]

    both = CompositeExecutor(
        NotingObserver(), [lambda o: factory(o, {"one": ["n1"]}), lambda o: factory(o, {"two": ["n2"]})]
    )
    made[1].remote = {"wizard": AWAY}
    assert both.host_states() == {"wizard": AWAY}
    assert both.reconnect("wizard")
    assert not both.reconnect("citadel")
    assert sent == ["reconnect wizard"]


def test_polling_asks_the_hosts_of_the_named_jobs(tmp_path: Path):
    async def test(wired: Wired) -> None:
        wired.executor.remote = {"wizard": AWAY, "citadel": HostState("connected")}
        reply = await ask(wired, {"request": "pollJobs"})
        assert reply == {"code": 0, "data": {"jobs": {}}}
        assert wired.happened[-2:] == ["poll citadel", "poll wizard"]
        await ask(wired, {"request": "pollJobs", "host": "wizard"})
        assert wired.happened[-2:] == ["poll wizard", "poll wizard"]
        reply = await ask(wired, {"request": "pollJobs", "host": "wizrd"})
        assert reply["message"] == 'this run has no remote host "wizrd"; did you mean "wizard"?'
        reply = await ask(wired, {"request": "pollJobs", "jobNames": ["none"]})
        assert reply["data"]["jobs"]["none"]["status"] == 1
        assert wired.happened[-1] == "poll wizard"

    run(tmp_path, test)
