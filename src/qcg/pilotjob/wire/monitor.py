"""What a socket's monitor tells about its connections."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zmq

_EVENT = struct.Struct("=Hi")


def events_of(monitor: zmq.Socket[bytes]) -> Iterator[tuple[int, int]]:
    """All that has happened since the last look: the kind of event and its number, an error or a descriptor."""
    while not monitor.closed:
        try:
            told, _ = monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        kind, value = _EVENT.unpack(told)
        yield kind, value
