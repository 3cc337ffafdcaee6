"""Requirements of a manager on its machine, checked before a run directory is created."""

from __future__ import annotations

import os
import socket

from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.host.process_tree import read_process
from qcg.pilotjob.wire.descriptors import GIVEN, NEEDED_BY_MANAGER, TooFewDescriptors, require

CONNECT_TIMEOUT = 5.0
"""Seconds for a connection of this machine to itself."""


def check_machine() -> None:
    """Raise UsageError where processes cannot be monitored, or too few files can be opened."""
    if not sees_processes():
        raise UsageError(
            "/proc is not mounted, so processes of jobs cannot be monitored and killed; mount it, for example"
            " with `mount -t proc proc /proc`"
        )
    try:
        require(NEEDED_BY_MANAGER)
    except TooFewDescriptors as error:
        raise UsageError(str(error)) from None
    if GIVEN < NEEDED_BY_MANAGER:  # agents run with this limit, as their jobs do
        raise UsageError(
            f"the limit of open files is {GIVEN}, and agents need {NEEDED_BY_MANAGER}; raise it, for example with"
            " `ulimit -n 1024`, and try again"
        )


def sees_processes() -> bool:
    """Whether /proc shows processes."""
    return read_process(os.getpid()) is not None


def check_connections(address: str) -> None:
    """Raise UsageError when agents on this machine cannot connect to this address."""
    host = address.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with (
            socket.create_server((host, 0), family=family) as server,
            socket.socket(family) as client,
        ):
            client.settimeout(CONNECT_TIMEOUT)
            client.connect(server.getsockname())
    except OSError as error:
        raise UsageError(
            f"this machine cannot connect to its own address {host}, which agents and clients connect to:"
            f" {error.strerror or error}; switch the network interface on, for example with `ip link set lo up`"
        ) from None
