"""The manager's socket for its agents: a CURVE-protected ROUTER inside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import zmq
from zmq.auth.asyncio import AsyncioAuthenticator

log = logging.getLogger(__name__)


class Keys:
    """Made anew for each manager; agents read their half from the contact file."""

    def __init__(self) -> None:
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self.server_public = server_public.decode()
        self.server_secret = server_secret.decode()
        self.client_public = client_public.decode()
        self.client_secret = client_secret.decode()

    def callback(self, domain: str, key: bytes) -> bool:
        """Asked by the authenticator for each connection."""
        if key == self.client_public.encode():
            return True
        log.warning("a connection without the key of this run was refused")
        return False


class Channel:
    """Messages in and out. All that has arrived is handed over at once, so that a burst is one turn of the loop."""

    def __init__(self, keys: Keys, address: str, on_messages: Callable[[list[tuple[bytes, bytes]]], None]) -> None:
        self._on_messages = on_messages
        self._context = zmq.Context()
        self._authenticator = AsyncioAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="*", credentials_provider=keys)
        socket = self._socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 1000)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15000)
        socket.curve_server = True
        socket.curve_publickey = keys.server_public.encode()
        socket.curve_secretkey = keys.server_secret.encode()
        socket.bind(address)
        self.address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(socket, self._drain)

    def send(self, peer: bytes, message: bytes) -> None:
        """To a peer that is gone, the message is dropped: the books are put right when it comes back."""
        self._socket.send_multipart([peer, message], zmq.NOBLOCK, copy=len(message) < 65536)
        # The descriptor signals edges only: what arrived while sending would be left lying.
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._drain)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._authenticator.stop()
        self._context.term()

    def _drain(self) -> None:
        messages = []
        while not self._socket.closed:
            try:
                peer, message = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            except ValueError:
                continue  # not two frames: nothing that an agent sends
            messages.append((peer, message))
        if messages:
            self._on_messages(messages)
