"""CURVE keys of connections. Each manager makes new ones, and clients read theirs from its contact file."""

from __future__ import annotations

from typing import Protocol

import zmq
from msgspec import Struct


class Keys(Struct, frozen=True):
    """Both ends of one kind of connection, in Z85."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str


class ClientKeys(Protocol):
    """The keys that a client needs to connect, as in contact files, in Z85."""

    @property
    def server_key(self) -> str: ...

    @property
    def client_public(self) -> str: ...

    @property
    def client_secret(self) -> str: ...


def make_keys() -> Keys:
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    return Keys(*(key.decode() for key in (server_public, server_secret, client_public, client_secret)))


def use_server_keys(socket: zmq.Socket[bytes], keys: Keys) -> None:
    """Accept only peers that know the server's public key. An authenticator has to check the keys of these peers."""
    socket.curve_server = True
    socket.curve_publickey = keys.server_public.encode()
    socket.curve_secretkey = keys.server_secret.encode()


def use_client_keys(socket: zmq.Socket[bytes], contact: ClientKeys) -> None:
    """Connect only to the server that has these keys, and show the client's own key."""
    socket.curve_serverkey = contact.server_key.encode()
    socket.curve_publickey = contact.client_public.encode()
    socket.curve_secretkey = contact.client_secret.encode()
