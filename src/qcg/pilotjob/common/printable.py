"""Text made safe to show: names, messages and paths on terminals, in logs and in reports.

Job names, messages, file names and program output may hold any character. Printed as they are, escape sequences control
the terminal, bidirectional controls reorder a line, and a line break forges a line of a log. Every character that is
not visible is therefore written as an escape such as `\\x1b`, `\\u202e` or `\\n`.
"""

from __future__ import annotations

import re
import unicodedata

_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_INVISIBLE_LETTERS = frozenset(
    map(chr, [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0, *range(0xE0100, 0xE01F0)])
)
"""Invisible characters that Unicode counts as letters or marks. Format characters are found by their category."""
_NOT_ASCII_OR_DELETE = re.compile("[^\x00-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """The text with every invisible character escaped, apart from characters in `keep` (line breaks, tabs)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [character if _is_visible(character) or character in keep else _escape(character) for character in text]
    )


def printable_lines(text: str) -> str:
    """Text of several lines: line breaks and tabs stay."""
    return printable(text, keep="\n\t")


def printable_entry(text: str) -> str:
    """Text of several lines as one entry of a log: further lines are indented, so that none looks like an entry."""
    return printable_lines(text).replace("\n", "\n    ")


def printable_json(document: bytes) -> bytes:
    """The same JSON document, with every invisible character that JSON allows in strings as `\\uNNNN`."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _NOT_ASCII_OR_DELETE.sub(_escape_in_json, document.decode()).encode()


def _is_visible(character: str) -> bool:
    if character.isprintable():
        return character not in _INVISIBLE_LETTERS
    return unicodedata.category(character) == "Zs"  # spaces of other scripts


def _escape(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte of a file name that is not UTF-8
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_in_json(match: re.Match[str]) -> str:
    character = match[0]
    if _is_visible(character):
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
