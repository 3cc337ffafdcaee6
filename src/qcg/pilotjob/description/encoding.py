"""The encoded form of a description, as the core and the registry keep it: msgpack.

The keys below serve as a quick test: an encoded description without the bytes of a key does not have that key. Few
descriptions have one of them, and a search is faster than decoding.
"""

from __future__ import annotations

import msgspec

from qcg.pilotjob.description.model import JobDescription

RETRY_KEY = b"\xa5retry"
OUTCOMES_KEY = b"\xa8outcomes"
COLUMNS_KEY = b"\xa7columns"
"""The key of a parameter file."""

decode_spec = msgspec.msgpack.Decoder(JobDescription).decode
"""Decodes a description; raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
