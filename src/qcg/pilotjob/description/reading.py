"""Bytes and Python values on their way to the decoders: one way in, so that both obey the same rules."""

from __future__ import annotations

from typing import Any

import msgspec

BACKSLASH, DOLLAR = b"\\$"
"""As numbers: to look for one byte takes a fifth of the time that a look for two takes."""


TOO_LARGE = "holds a number with too many digits; write it as a string"


class Unreadable(Exception):
    """The input is no JSON at all. The message goes on after "the request" or "the job"."""

    @classmethod
    def because(cls, error: Exception) -> Unreadable:
        if isinstance(error, RecursionError):
            return cls("nests too many levels deep")
        if isinstance(error, UnicodeError):
            return cls("is not valid UTF-8 text")
        if isinstance(error, TypeError):
            return cls(f"holds something that JSON cannot: {error}")
        # The decoder says the first, Python's conversion between numbers and text the second.
        if "out of range" in str(error) or "digits" in str(error):
            return cls(TOO_LARGE)
        return cls(f"is not valid JSON: {error}")


def as_json(given: bytes | msgspec.Raw | dict[str, Any]) -> bytes:
    if isinstance(given, msgspec.Raw):
        return bytes(given)
    if isinstance(given, bytes):
        return given
    try:
        return msgspec.json.encode(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unreadable.because(error) from None


def decode_anything(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable.because(error) from None
