"""Grants and ends of jobs as the registry stores them: msgpack."""

from __future__ import annotations

from functools import lru_cache
from typing import Union

import msgspec

from qcg.pilotjob.core.records import Grant, NodePart

ENDS_IN_BATCH = 1000
"""The most ends in one row: a client that asks for a few ends must not wait until a million are decoded."""

_encode = msgspec.msgpack.Encoder().encode
encode_ends = _encode
_decode_grant = msgspec.msgpack.Decoder(Union[tuple[NodePart, ...], Grant]).decode
_decode_ends = msgspec.msgpack.Decoder(list[tuple[str, int]]).decode


def encode_grant(grant: Grant) -> bytes:
    """Nearly all grants have only parts, and are stored as such; the others are stored whole."""
    return _encode(grant.parts if grant.extra is None else grant)


# The same cores are granted again and again.
@lru_cache(maxsize=4096)
def decode_grant(data: bytes) -> Grant:
    stored = _decode_grant(data)
    return stored if isinstance(stored, Grant) else Grant(stored)


# A client that is behind asks for the rest of the same batch, and other clients ask for the newest one.
@lru_cache(maxsize=16)
def decode_ends(batch: bytes) -> list[tuple[str, int]]:
    """The name and state of each job, in the order of their ends."""
    return _decode_ends(batch)
