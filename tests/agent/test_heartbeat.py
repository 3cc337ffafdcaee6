"""The second connection between agent and manager, which only the network can interrupt."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
import zmq

from qcg.pilotjob.agent import heartbeat
from qcg.pilotjob.agent.fence import Fence
from qcg.pilotjob.agent.heartbeat import Heartbeat
from qcg.pilotjob.executors.heartbeats import HeartbeatServer
from qcg.pilotjob.host.records import STEP_ID
from qcg.pilotjob.wire import connection_limiter
from qcg.pilotjob.wire.contact import AgentsContact
from qcg.pilotjob.wire.keys import make_keys
from tests.agent.manager import NAME, AgentProcess, launch, manager
from tests.support.connections import is_closed
from tests.support.processes import is_alive
from tests.support.waiting import wait_for


def test_only_answered_heartbeats_renew_the_lease(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat, "AGENT_HEARTBEAT", 0.1)
    keys = make_keys()
    server = HeartbeatServer(keys, "tcp://127.0.0.1:*", ["n1", "n2"])
    contact = (keys.server_public, keys.client_public, keys.client_secret, server.address)
    known: list[float] = []
    fence = Fence(lambda: None)
    monkeypatch.setattr(fence, "renew", known.append)
    sender = Heartbeat("n1", fence)
    try:
        sender.follow(AgentsContact("", *contact))
        wait_for(lambda: len(known) > 3, what="several answers")
        assert known == sorted(known)
        assert list(server.heard) == ["n1"]
        assert server.heard["n1"] >= known[0]

        def answers() -> tuple[int, float]:
            return len(known), server.heard["n1"]

        def are_over() -> bool:
            before = answers()
            time.sleep(0.5)
            return answers() == before

        server.ignore(["n1"])
        wait_for(are_over, what="the last answer, after those on their way")
        count = len(known)
        server.ignore([])
        wait_for(lambda: len(known) > count, what="answers again")
    finally:
        sender.close()
        server.close()


def test_heartbeats_follow_the_manager(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat, "AGENT_HEARTBEAT", 0.1)
    fence = Fence(lambda: None)
    sender = Heartbeat("n1", fence)
    try:
        for _ in range(2):
            keys = make_keys()
            server = HeartbeatServer(keys, "tcp://127.0.0.1:*", ["n1"])
            contact = (keys.server_public, keys.client_public, keys.client_secret, server.address)
            sender.follow(AgentsContact("", *contact))
            wait_for(partial(getattr, server, "heard"), what="a heartbeat")
            server.close()
    finally:
        sender.close()


def test_heartbeats_survive_another_process_at_the_address_of_the_manager(monkeypatch: pytest.MonkeyPatch):
    """A peer that connects without keys, such as another program that was given the port."""
    monkeypatch.setattr(heartbeat, "AGENT_HEARTBEAT", 0.05)
    monkeypatch.setattr(heartbeat, "AGENT_SILENCE", 1.0)
    made: list[object] = []
    make = heartbeat._connect
    monkeypatch.setattr(heartbeat, "_connect", lambda *where: made.append(None) or make(*where))  # type: ignore[func-returns-value]
    keys = make_keys()
    key_words = (keys.server_public, keys.client_public, keys.client_secret)
    server = HeartbeatServer(keys, "tcp://127.0.0.1:*", ["n1"])
    sender = Heartbeat("n1", Fence(lambda: None))
    try:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as other:
            port = other.bind_to_random_port("tcp://127.0.0.1")
            sender.follow(AgentsContact("", *key_words, f"tcp://127.0.0.1:{port}"))
            wait_for(lambda: len(made) == 3, what="fresh connections")
        sender.follow(AgentsContact("", *key_words, server.address))
        wait_for(lambda: server.heard, what="a heartbeat")
    finally:
        sender.close()
        server.close()


def test_connections_without_keys_to_the_heartbeat_port_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_limiter, "MOST_PENDING", 4)
    server = HeartbeatServer(make_keys(), "tcp://127.0.0.1:*", ["n1"])
    host, _, port = server.address.removeprefix("tcp://").rpartition(":")
    try:
        with contextlib.ExitStack() as strangers:
            connections = [strangers.enter_context(socket.create_connection((host, int(port)))) for _ in range(20)]
            wait_for(lambda: sum(map(is_closed, connections)) == 16, what="all but four to be closed")
    finally:
        server.close()


def test_an_agent_on_a_hanging_file_system_keeps_its_jobs_while_heartbeats_are_answered(run_dir: Path):
    """Reading the contact file hangs, as on a file system that does not answer."""
    with manager(run_dir, heartbeat=True) as first:
        assert first.heartbeats is not None
        agent = AgentProcess(run_dir, settings={"heartbeat.AGENT_HEARTBEAT": 0.2})
        pipe = run_dir / "hang"
        try:
            instance = f"pilot-{uuid.uuid4().hex}"
            first.meet(instance=instance, fence=5.0)
            first.start(launch("a", "sleep", "1000", wd=run_dir)._replace(env={STEP_ID: f"{instance}.a"}))
            pid = first.started("a").pid
            os.mkfifo(pipe, 0o600)
            wait_for(lambda: _is_opening(agent.pid), what="the agent hangs")
            time.sleep(7)  # longer than the fence allows
            assert is_alive(pid)
            first.heartbeats.ignore([NAME])
            wait_for(lambda: not is_alive(pid), what="the end of the job")
        finally:
            if pipe.is_fifo():
                pipe.rename(run_dir / "fifo")
                for _ in range(2):
                    os.close(os.open(run_dir / "fifo", os.O_RDWR | os.O_NONBLOCK))
            agent.kill()


def _is_opening(pid: int) -> bool:
    """Whether the agent waits for the other end of a named pipe."""
    return Path(f"/proc/{pid}/wchan").read_text() in ("wait_for_partner", "fifo_open")
