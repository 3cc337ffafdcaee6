"""Ends of jobs as the registry stores them: batches of names and states in msgpack."""

from __future__ import annotations

from functools import lru_cache

import msgspec

ENDS_IN_BATCH = 1000
"""At most: a client that asks for a few ends must not wait until a million of them are decoded."""

encode_ends = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, int]]).decode


# A client that is behind asks for the rest of the same batch, and other clients ask for the newest one.
@lru_cache(maxsize=16)
def decode_ends(batch: bytes) -> list[tuple[str, int]]:
    """The name and state of each job, in the order of their ends."""
    return _decode(batch)
