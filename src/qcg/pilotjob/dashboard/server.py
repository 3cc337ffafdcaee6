"""The server of the dashboard: a socket that only its owner can use, and a thread for each connection."""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from qcg.pilotjob.dashboard.access import Access
from qcg.pilotjob.dashboard.api import Api, error_content
from qcg.pilotjob.dashboard.connections import Connections
from qcg.pilotjob.dashboard.feed import SummaryFeed
from qcg.pilotjob.dashboard.handler import Handler
from qcg.pilotjob.dashboard.page_files import load_page
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory
from qcg.pilotjob.watch.open import FollowedRun

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 100
LONGEST_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket on Linux."""
SECONDS_TO_END = 2.0
"""Seconds within which connections end when the server ends."""


class CannotServe(Exception):
    """The socket cannot be made; the message is a sentence."""


class DashboardServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves the page and the data of one run. `serve_forever` returns after `stop`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, listening: socket.socket, run: FollowedRun, access: Access) -> None:
        super().__init__(listening.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.access = access
        self.feed = SummaryFeed(run)
        self.api = Api(run, self.feed, control=access.control)
        self.page = load_page()
        self.connections = Connections(MOST_CONNECTIONS)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse further connections when there are too many, and other users of a Unix socket."""
        if request.family == socket.AF_UNIX and _peer_uid(request) not in (os.geteuid(), 0):
            return False
        if self.connections.enter(request):
            return True
        content = error_content("There are too many connections; close some pages of the dashboard.")
        with suppress(OSError):
            request.settimeout(0.0)
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
            )
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.connections.set_thread(request)
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called at the end of each connection, even if no thread could be started for it."""
        self.connections.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called for unexpected errors, while the exception is handled."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("a connection was ended by an error", exc_info=error)

    def stop(self) -> None:
        """End all connections and `serve_forever`; called from another thread."""
        self.feed.close()
        self.api.close()
        self.shutdown()
        self.server_close()
        self.connections.end(SECONDS_TO_END)


def listen_on_port(port: int) -> socket.socket:
    """A socket on the loopback interface; port 0 takes a free one. Raises CannotServe."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(DashboardServer.request_queue_size)
    except OSError as error:
        listening.close()
        raise CannotServe(
            f"port {port} cannot be used: {os.strerror(error.errno or 0)}; give another --port, or --port 0 for any"
        ) from None
    return listening


def listen_on_path(path: Path) -> socket.socket:
    """A Unix socket that only its owner can open, in a directory that only its owner can enter. Raises CannotServe."""
    path = path.absolute()
    _check_path(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
        listening.listen(DashboardServer.request_queue_size)
    except OSError as error:
        listening.close()
        raise CannotServe(f"the socket {path} cannot be made: {os.strerror(error.errno or 0)}") from None
    finally:
        os.umask(before)
    return listening


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise CannotServe(
            f"the path of the socket has more than {LONGEST_SOCKET_PATH} bytes, which the system does not allow; give"
            " a shorter one, for example in /tmp"
        )
    if os.path.lexists(path):
        raise CannotServe(f"{path} exists already; give another --socket, or remove it if no dashboard uses it")
    try:
        check_own_directory(path.parent)
        is_private = not stat.S_IMODE(path.parent.stat().st_mode) & 0o077
    except FileNotFoundError:
        raise CannotServe(f"there is no directory {path.parent}; make one with: mkdir -m 700") from None
    except UnsafeFile as unsafe:
        raise CannotServe(unsafe.sentence) from None
    except OSError as error:
        raise CannotServe(f"{path.parent} cannot be read: {os.strerror(error.errno or 0)}") from None
    if not is_private:
        raise CannotServe(
            f"other users can enter {path.parent}; put the socket into a directory of your own (mkdir -m 700)"
        )


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)
