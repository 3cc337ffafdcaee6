"""Keys, made anew for each manager: whoever can read the contact file can talk to it, and nobody else."""

from __future__ import annotations

import zmq
from msgspec import Struct


class Keys(Struct, frozen=True):
    """Both ends of one kind of connection, in Z85."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str


def make_keys() -> Keys:
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    return Keys(*(key.decode() for key in (server_public, server_secret, client_public, client_secret)))
