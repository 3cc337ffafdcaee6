"""Finds the address of this machine that other machines can reach."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
_ANY_PORT = 9


def address_towards(hosts: Iterable[str]) -> str | None:
    """The address that packets to these hosts would come from; the first one that is not this machine itself decides.
    None when no name leads out of this machine: some give their own names to an address that nobody else reaches.

    As it stands in the address of a socket: those of IPv6 in brackets. Nothing is sent: the kernel only looks up the
    route.
    """
    own = None
    for host in hosts:
        for target in _addresses_of(host):
            source = _source_towards(target)
            if source is not None:
                own = own or source
                if source != target:
                    return _for_sockets(source)
                break
    return _for_sockets(own) if own else None


def _addresses_of(host: str) -> list[str]:
    """The addresses of a host that other machines can use; IPv4 first."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, socket.AF_UNSPEC, socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError):
        return []
    addresses = [str(address[0]) for _, _, _, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET)]
    return [address for address in addresses if _is_of_use(address)]


def _is_of_use(address: str) -> bool:
    """Not loopback, and not link-local: that would need the name of a link, which differs between machines."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return not parsed.is_loopback and not (parsed.version == 6 and parsed.is_link_local)


def _source_towards(target: str) -> str | None:
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, _ANY_PORT))
            source = str(probe.getsockname()[0])
    except OSError:
        return None
    return source if _is_of_use(source) else None


def _for_sockets(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def is_ipv6(address: str) -> bool:
    """Whether a socket's address is one of IPv6, which ZeroMQ has to know before it connects or listens."""
    return "[" in address
