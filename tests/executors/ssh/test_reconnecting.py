"""Times of logins at a host that refuses them: hosts ban users for frequent failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import Connection, Connector
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.job_files import NoJobFiles
from qcg.pilotjob.executors.ssh.link import HostLink
from qcg.pilotjob.executors.ssh.marker import HostMarker
from qcg.pilotjob.executors.ssh.orders import Orders
from qcg.pilotjob.executors.ssh.transport import ChannelObserver
from qcg.pilotjob.host.records import Running
from tests.support.simulated_clock import run_simulated
from tests.support.ssh_executor import Noted, a_launch

QUIET = [0, 1, 3, 7, 15, 31, 63]
"""Seconds of the logins in 100 s in which nobody uses the host."""


class RefusedConnector(Connector):
    """Connects to a host that refuses every login."""

    def __init__(self) -> None:
        self.config = HostConfig("wizard", addresses=("wizard",))
        self.notices = []
        self.logins: list[float] = []

    async def connect(self, observer: ChannelObserver) -> Connection:
        self.logins.append(round(asyncio.get_running_loop().time(), 3))
        raise ConnectionProblem("wizard refuses the login", by_network=False)


class Refused:
    """The link to this host, on a simulated clock."""

    def __init__(self, run_dir: Path) -> None:
        self._connector = RefusedConnector()
        self.link = HostLink(self._connector, {}, Noted(), HostMarker(run_dir, "wizard"), NoJobFiles())

    @property
    def logins(self) -> list[float]:
        return self._connector.logins


def kill(link: HostLink, seq: int) -> None:
    orders = Orders()
    orders.kill(f"{seq}.1", "cancel", "")
    link.send([], orders)


def signal(link: HostLink, seq: int) -> None:
    orders = Orders()
    orders.signal([f"{seq}.1"], 10)
    link.send([], orders)


USES: dict[str, Callable[[HostLink, int], None]] = {
    "nothing": lambda link, seq: None,
    "kill": kill,
    "signal": signal,
    "launch": lambda link, seq: link.send([a_launch(seq)], Orders()),
    "poll": lambda link, seq: link.poll_soon(),
    "acknowledge": lambda link, seq: link.acknowledge("wizard", seq),
}


@pytest.mark.parametrize("use", USES)
def test_the_use_of_a_host_that_refuses_logins_causes_no_more_logins(tmp_path: Path, use: str):
    async def scenario() -> None:
        host = Refused(tmp_path)
        host.link.start(may_have_attempts=True)
        for seq in range(1, 1000):
            await asyncio.sleep(0.1)
            USES[use](host.link, seq)
        host.link.close()
        assert host.logins == QUIET

    run_simulated(scenario())


def test_a_user_can_end_the_pause_but_not_shorten_the_next_one(tmp_path: Path):
    async def scenario() -> None:
        host = Refused(tmp_path)
        host.link.start(may_have_attempts=True)
        await asyncio.sleep(8.5)
        host.link.retry_now()
        await asyncio.sleep(20)
        host.link.close()
        assert host.logins == [0, 1, 3, 7, 8.5, 24.5]

    run_simulated(scenario())


def test_a_request_to_connect_before_the_first_job_is_not_kept_for_the_first_pause(tmp_path: Path):
    async def scenario() -> None:
        host = Refused(tmp_path)
        host.link.start(may_have_attempts=False)
        host.link.retry_now()
        assert host.logins == []
        host.link.send([a_launch(1)], Orders())
        await asyncio.sleep(5)
        host.link.close()
        assert host.logins == [0, 1, 3]

    run_simulated(scenario())


def test_a_shutdown_with_live_jobs_tries_to_connect_at_once(tmp_path: Path):
    async def scenario() -> None:
        host = Refused(tmp_path)
        host.link.start(may_have_attempts=True)
        host.link._attempts.reported([Running("1.1", 5, 0.0, [])])
        await asyncio.sleep(8.5)
        await host.link.shut_down(0.0, "cancel")
        assert host.logins == [0, 1, 3, 7, 8.5]

    run_simulated(scenario())
