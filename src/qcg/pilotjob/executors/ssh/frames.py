"""The frames between this side and the sub-commands of a host, on asyncio streams.

    near -> far     JSONLEN PAYLOADLEN newline JSON payload
    far  -> near    MARKER JSONLEN PAYLOADLEN newline JSON payload

The marker is random and new for each connection. Everything before it is skipped, so banners and the output of login
scripts do no harm, even when their last line has no end.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, NamedTuple

import msgspec

MOST_BYTES = 1 << 30
"""Size of the largest frame that is read."""
MOST_NOISE = 16 << 20
"""Bytes before the first frame after which a connection is given up."""
_LONGEST_HEADER = 64
_PART = 1 << 18
_KEPT_NOISE = 2000


class FrameError(Exception):
    """What arrived is no frame; the message is a clause."""


class Frame(NamedTuple):
    head: dict[str, Any]
    payload: bytes = b""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def new_marker() -> str:
    return secrets.token_hex(16)


def request_frame(head: dict[str, Any], payload: bytes = b"", replaced: tuple[bytes, bytes] | None = None) -> bytes:
    """A frame for the far side. `replaced`: a text that occurs in the JSON, and the JSON text to put in its place."""
    text = _encode(head)
    if replaced is not None:
        text = text.replace(*replaced)
    return b"%d %d\n%b%b" % (len(text), len(payload), text, payload)


class FrameReader:
    """Reads frames that begin with a marker, and skips everything between them."""

    def __init__(self, stream: asyncio.StreamReader, marker: str) -> None:
        self._stream = stream
        self._marker = marker.encode("ascii")
        self._buffer = bytearray()
        self._skipped = bytearray()
        self._skipped_bytes = 0
        self.received = 0
        """Bytes that have arrived, also of frames that are not complete."""

    @property
    def noise(self) -> str:
        """The last part of the skipped bytes, for messages."""
        return bytes(self._skipped + self._buffer[:_KEPT_NOISE])[-_KEPT_NOISE:].decode("utf-8", "replace").strip()

    async def line(self) -> str | None:
        """The rest of the next line with the marker; None at the end of the stream."""
        while True:
            found = self._buffer.find(self._marker)
            if found >= 0:
                self._skip(found)
                end = self._buffer.find(b"\n", 0, _LONGEST_HEADER + len(self._marker))
                if end >= 0:
                    text = self._buffer[len(self._marker) : end].decode("ascii", "replace").strip()
                    del self._buffer[: end + 1]
                    return text
                if len(self._buffer) >= _LONGEST_HEADER + len(self._marker):
                    # The marker alone, as when a far shell repeats its input: no frame begins here.
                    self._skip(len(self._marker))
                    continue
            else:
                self._skip(max(0, len(self._buffer) - len(self._marker)))
            if not await self._more():
                return None

    async def frame(self) -> Frame | None:
        """The next frame; None at the end of the stream. Raises FrameError."""
        header = await self.line()
        if header is None:
            return None
        try:
            json_length, payload_length = map(int, header.split())
        except ValueError:
            raise FrameError(f"the host sent {header[:80]!r} in place of an answer") from None
        if not (0 < json_length <= MOST_BYTES and 0 <= payload_length <= MOST_BYTES):
            raise FrameError(
                f"the host announced an answer of {json_length + payload_length} bytes, which is too large"
            )
        while len(self._buffer) < json_length + payload_length:
            if not await self._more():
                return None
        text = bytes(self._buffer[:json_length])
        payload = bytes(self._buffer[json_length : json_length + payload_length])
        del self._buffer[: json_length + payload_length]
        try:
            return Frame(_decode(text), payload)
        except msgspec.DecodeError as error:
            raise FrameError(f"the host sent an answer that cannot be decoded ({error})") from None

    async def rest(self) -> bytes:
        """The next raw bytes behind a frame; empty at the end of the stream."""
        if not self._buffer and not await self._more():
            return b""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def _more(self) -> bool:
        data = await self._stream.read(_PART)
        self._buffer += data
        self.received += len(data)
        return bool(data)

    def _skip(self, count: int) -> None:
        if not count:
            return
        self._skipped += self._buffer[:count]
        del self._skipped[:-_KEPT_NOISE]
        del self._buffer[:count]
        self._skipped_bytes += count
        if self._skipped_bytes > MOST_NOISE:
            raise FrameError(f"the host sent more than {MOST_NOISE >> 20} MiB of other output before its answer")
