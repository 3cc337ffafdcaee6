"""Grants as the registry stores them: the node parts in msgpack."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from qcg.pilotjob.core.records import Grant, NodePart

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[NodePart, ...]).decode


def encode_grant(grant: Grant) -> bytes:
    return _encode(grant.parts)


# The same cores are given again and again.
@lru_cache(maxsize=4096)
def decode_grant(data: bytes) -> Grant:
    return Grant(_decode(data))
