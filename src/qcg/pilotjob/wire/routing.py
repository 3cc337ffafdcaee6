"""Finds the address of this machine that other machines can reach."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
_ANY_PORT = 9


def address_towards(hosts: Iterable[str]) -> str | None:
    """The source address of packets to the first of these hosts that is another machine, IPv6 addresses in brackets.

    When all of them are this machine, an address of its own that others can reach; None when there is no such address,
    as on machines whose names stand for loopback addresses. Nothing is sent: the kernel only looks up routes.
    """
    own = None
    for host in hosts:
        for target in _addresses_of(host):
            source = _source_address(target)
            if source is not None:
                own = own or source
                if source != target:
                    return _bracketed(source)
                break
    return _bracketed(own) if own else None


def _addresses_of(host: str) -> list[str]:
    """The addresses of a host that other machines can use; IPv4 first."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, socket.AF_UNSPEC, socket.SOCK_DGRAM)
    except (socket.gaierror, UnicodeError):
        return []
    addresses = [str(address[0]) for _, _, _, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET)]
    return [address for address in addresses if _is_routable(address)]


def _is_routable(address: str) -> bool:
    """Whether other machines can use an address. Link-local ones need the name of a link, which differs by machine."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return not parsed.is_loopback and not (parsed.version == 6 and parsed.is_link_local)


def _source_address(target: str) -> str | None:
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, _ANY_PORT))
            source = str(probe.getsockname()[0])
    except OSError:
        return None
    return source if _is_routable(source) else None


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def is_ipv6(address: str) -> bool:
    """Whether a ZeroMQ address uses IPv6, which has to be enabled before a socket connects or listens."""
    return "[" in address
