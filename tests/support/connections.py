"""Plain TCP connections, as peers without keys have them."""

from __future__ import annotations

import socket


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection; data that it sent before is dropped."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True
