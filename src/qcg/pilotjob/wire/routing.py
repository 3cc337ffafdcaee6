"""Which of this machine's addresses others can reach."""

from __future__ import annotations

import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
_ANY_PORT = 9


def address_towards(hosts: Iterable[str]) -> str:
    """The address that packets to these hosts would come from; the first one that is not this machine itself decides.

    Nothing is sent: the kernel only looks up the route.
    """
    own = LOOPBACK
    for host in hosts:
        try:
            found = socket.getaddrinfo(host, _ANY_PORT, socket.AF_INET, socket.SOCK_DGRAM)
        except socket.gaierror:
            continue
        target = found[0][4]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            own = str(probe.getsockname()[0])
        if own != target[0]:
            return own
    return own
