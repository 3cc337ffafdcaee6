"""Grants as the registry stores them: the node parts in msgpack."""

from __future__ import annotations

import msgspec

from qcg.pilotjob.core.records import Grant, NodePart

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[NodePart, ...]).decode


def encode_grant(grant: Grant) -> bytes:
    return _encode(grant.parts)


def decode_grant(data: bytes) -> Grant:
    return Grant(_decode(data))
