"""Requests to a host, and what is told of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import Connection
from qcg.pilotjob.executors.ssh.exchange import HostExchange
from qcg.pilotjob.executors.ssh.frames import Frame
from qcg.pilotjob.executors.ssh.hooks import ConnectedHost, NoJobFiles
from qcg.pilotjob.executors.ssh.orders import kill_request
from qcg.pilotjob.executors.ssh.transport import Transport
from tests.support.ssh_executor import Noted

WIZARD = HostConfig("wizard", ("login1", "login2"))


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


@pytest.mark.parametrize(("left", "notices"), [(["1.1"], 1), ([], 0)])
def test_a_kill_that_only_another_login_host_can_carry_out_is_told_once(left: list[str], notices: int):
    async def scenario() -> list[str]:
        noted = Noted()
        exchange = HostExchange(WIZARD, {}, noted, NoJobFiles())
        host = ConnectedHost(WIZARD, "login2", Control("no"), "qcg-run/x", "/home/me/qcg-run/x", shared=False)
        connection = Connection(Answering({"done": [], "left": left}), host, {}, serves=True)
        for _ in range(2):
            await exchange.call_if_admitted(connection, kill_request(["1.1"], "cancel", "", None))
        return noted.notices

    told = asyncio.run(scenario())
    assert len(told) == notices
    assert all("1 job runs on another login host than login2" in sentence for sentence in told)
