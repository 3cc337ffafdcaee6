"""Requests to a host, and the reports of its answers to the observer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import Connection
from qcg.pilotjob.executors.ssh.exchange import MOST_REFUSALS_SHOWN, HostExchange
from qcg.pilotjob.executors.ssh.frames import Frame
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost, NoJobFiles
from qcg.pilotjob.executors.ssh.orders import kill_request
from qcg.pilotjob.executors.ssh.transport import Transport
from qcg.pilotjob.host.records import EndReason
from tests.support.ssh_executor import Noted, a_launch

WIZARD = HostConfig("wizard", ("login1", "login2"))


FULL = "The ledger /home/me/qcg-run/x/.service/batch.ledger cannot be written: No space left on device."


class Answering(Transport):
    """A transport that answers every request in the same way."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    async def open(self) -> None:
        return

    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: object = None) -> Frame:
        return Frame(self._answer, b"")

    def close(self) -> None:
        return


def connected(transport: Transport) -> Connection:
    host = ConnectedHost(WIZARD, "login2", Control("no"), "qcg-run/x", "/home/me/qcg-run/x", shared=False)
    return Connection(transport, host, {}, serves=True)


class Acknowledging:
    """Replaces an executor for records that need no acknowledgement."""

    def acknowledge(self, numbers: dict[str, int]) -> None:
        return


def submitted(answer: dict[str, Any], *seqs: int) -> tuple[Noted, HostExchange]:
    """Submit launches in one frame, with this answer."""

    async def scenario() -> tuple[Noted, HostExchange]:
        noted = Noted()
        noted.executor = Acknowledging()  # type: ignore[assignment]
        exchange = HostExchange(WIZARD, {}, noted, NoJobFiles())
        for seq in seqs:
            exchange.attempts.add(a_launch(seq))
        await exchange.submit(connected(Answering(answer)), exchange.attempts.take(lambda launch: True))
        return noted, exchange

    return asyncio.run(scenario())


@pytest.mark.parametrize(("left", "notices"), [(["1.1"], 1), ([], 0)])
def test_a_kill_that_only_another_login_host_can_carry_out_is_reported_once(left: list[str], notices: int):
    async def scenario() -> list[str]:
        noted = Noted()
        exchange = HostExchange(WIZARD, {}, noted, NoJobFiles())
        connection = connected(Answering({"done": [], "left": left}))
        for _ in range(2):
            await exchange.call_if_admitted(connection, kill_request(["1.1"], "cancel", "", None))
        return noted.notices

    sentences = asyncio.run(scenario())
    assert len(sentences) == notices
    assert all("1 job runs on another login host than login2" in sentence for sentence in sentences)


def test_a_launch_that_the_host_refuses_ends_at_once_as_never_started():
    results = {"1.1": {"error": FULL}, "2.1": "accepted", "3.1": "known"}
    live = [["2.1", 0, 0.0, []], ["3.1", 7, 1.0, []]]
    noted, exchange = submitted({"results": results, "live": live}, 1, 2, 3)
    (ended,) = noted.ended.values()
    assert (ended.id, ended.reason, ended.message) == ("1.1", EndReason.UNSTARTABLE, FULL)
    assert (ended.pid, ended.started) == (0, 0.0)
    assert [running.id for running in exchange.attempts.all()] == ["2.1", "3.1"]
    assert exchange.attempts.may_run == ["2.1", "3.1"]


def test_each_reason_for_which_a_host_refuses_jobs_is_reported_once():
    noted, _ = submitted({"results": {f"{seq}.1": {"error": FULL} for seq in range(50)}}, *range(50))
    assert noted.notices == [f"wizard does not accept a job: {FULL}"]


def test_sentences_that_differ_for_each_job_do_not_flood_the_user():
    results = {f"{seq}.1": {"error": f"Attempt {seq}.1 cannot be claimed.\x1b[2J"} for seq in range(50)}
    noted, _ = submitted({"results": results}, *range(50))
    assert len(noted.notices) == MOST_REFUSALS_SHOWN
    assert all("\x1b" not in sentence for sentence in noted.notices)
    assert len(noted.ended) == 50


def test_a_launch_whose_id_the_host_cannot_read_ends_too():
    noted, exchange = submitted({"results": {"": {"error": "The launch cannot be read."}}}, 1)
    assert noted.ended["1.1"].message == "The launch cannot be read."
    assert exchange.attempts.is_empty


def test_a_refusal_whose_record_came_first_is_not_reported_again():
    async def scenario() -> Noted:
        noted = Noted()
        noted.executor = Acknowledging()  # type: ignore[assignment]
        exchange = HostExchange(WIZARD, {}, noted, NoJobFiles())

        class RecordFirst(Answering):
            async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: object = None) -> Frame:
                end = ["1.1", 2.0, -1, EndReason.UNSTARTABLE, "as recorded", 0, 0.0, [], None]
                exchange.records_arrived({"batch": [["e", 1, end]]})
                return await super().call(request, payload, replaced)

        exchange.attempts.add(a_launch(1))
        launches = exchange.attempts.take(lambda launch: True)
        await exchange.submit(connected(RecordFirst({"results": {"1.1": {"error": FULL}}})), launches)
        assert exchange.attempts.is_empty
        return noted

    assert asyncio.run(scenario()).ended["1.1"].message == "as recorded"
