"""Splits large messages into parts, because listening sockets accept small frames only.

ZeroMQ allocates a frame as soon as its size is announced, also for peers that have not shown a key yet. So the
listening sockets accept frames of at most `PART` bytes, and a larger body is sent as several frames of one message.
"""

from __future__ import annotations

from collections.abc import Sequence

PART = 64 << 10
"""Bytes of the largest frame that a listening socket with keys accepts."""
ENCRYPTION = 64
"""Bytes that CURVE adds to a frame at most; ZeroMQ counts them too."""
MARK = b"QCG_PM_PARTS"
"""The frame before the parts of a request. Without it the last frame alone is the request."""


def split(body: bytes) -> list[bytes]:
    """The body as frames of at most `PART` bytes; an empty body is one empty frame."""
    if len(body) <= PART:
        return [body]
    return [body[start : start + PART] for start in range(0, len(body), PART)]


def request_frames(body: bytes) -> list[bytes]:
    """The frames of a request: the body alone, or `MARK` and its parts."""
    return [body] if len(body) <= PART else [MARK, *split(body)]


def split_request(frames: Sequence[bytes]) -> tuple[list[bytes], Sequence[bytes]]:
    """The frames that lead back to the client, and the frames of the request."""
    if MARK in frames[:-1]:
        index = frames.index(MARK)
        return list(frames[:index]), frames[index + 1 :]
    return list(frames[:-1]), frames[-1:]
