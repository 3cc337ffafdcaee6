"""Notifications of jobs on remote hosts: a small listener, and the settings that tell hosts how to reach it.

A notification only says that a host has new records. It is signed with a key that is in an owner-only file on the host,
so that nobody else makes a manager poll."""

from __future__ import annotations

import asyncio
import getpass
import hmac
import json
import logging
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.host.remote.notifier import signature
from qcg.pilotjob.wire.routing import address_towards

log = logging.getLogger(__name__)

LONGEST_LINE = 1000
TIMEOUT = 5.0
"""Seconds for a connection to send its line."""
MOST_CONNECTIONS = 64


class NotificationListener:
    """Listens on a port for notifications. The port is taken at once, and served from `start` on."""

    def __init__(self, on_news: Callable[[str], None]) -> None:
        """`on_news`: called with the name of the host."""
        self._on_news = on_news
        self._key = secrets.token_hex(32)
        self._socket = socket.create_server(("", 0))
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Future[None] | None = None
        self._connections = 0

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def settings(self, config: HostConfig) -> dict[str, Any]:
        """The settings with which a host sends notifications."""
        address = manager_address(config)
        return {"how": "messages", "host": config.name, "address": address, "port": self.port, "key": self._key}

    def start(self) -> None:
        self._starting = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._handle, sock=self._socket, limit=LONGEST_LINE)

    def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                line = await asyncio.wait_for(reader.readline(), TIMEOUT)
                host = self._host_of(line)
                if host is not None:
                    self._on_news(host)
                    writer.write(b"ok\n")
                    await asyncio.wait_for(writer.drain(), TIMEOUT)
        except (OSError, ValueError, asyncio.TimeoutError, TimeoutError):
            log.debug("a notification could not be read")
        finally:
            self._connections -= 1
            writer.close()

    def _host_of(self, line: bytes) -> str | None:
        """The host that a notification names; None when it is not signed with the key."""
        try:
            proof, _, text = line.decode("utf-8").rstrip("\n").partition(" ")
            if not hmac.compare_digest(proof, signature(self._key, text)):
                return None
            host = json.loads(text)["host"]
        except (ValueError, KeyError, TypeError):
            return None
        return host if isinstance(host, str) else None


def ssh_settings(config: HostConfig, run_dir: Path) -> dict[str, Any]:
    """The settings with which a host notifies this manager by ssh: the command that runs there."""
    back = config.manager_address or f"{getpass.getuser()}@{socket.getfqdn()}"
    environment = [f"PYTHONPATH={path}" for path in (os.environ.get("PYTHONPATH"),) if path]
    words = [*(["env", *environment] if environment else []), sys.executable, "-m", "qcg.pilotjob.cli"]
    poll = [*words, "poll", "--path", str(run_dir), "--host", config.name]
    options = ["-oBatchMode=yes", "-oConnectTimeout=10", "-n", "-T"]
    return {"how": "ssh", "command": ["ssh", *options, back, shlex.join(poll)]}


def manager_address(config: HostConfig) -> str:
    """The address of this machine for a host."""
    if config.manager_address:
        return config.manager_address.rpartition("@")[2]
    return address_towards(config.addresses) or socket.getfqdn()
