"""Decodes terminal input into names of keys.

A printable character is its own name; other keys are called `up`, `pagedown`, `enter`, `escape`, `ctrl-c` and so on.
Sequences of unknown keys, and answers of the terminal, are dropped as a whole.
"""

from __future__ import annotations

import codecs
import re

ESCAPE_DELAY = 0.05
"""Seconds after which an escape character without further input is the Escape key."""

_LONGEST_SEQUENCE = 64
_CONTROL = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "escape",
}
_FINAL = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "backtab", "P": "f1"}
_NUMBERED = {"1": "home", "4": "end", "5": "pageup", "6": "pagedown", "7": "home", "8": "end", "11": "f1"}
_CSI = re.compile(r"\x1b\[([0-?]*)[ -/]*([@-~])")
_SS3 = re.compile(r"\x1bO([ -~])")
_STRING = re.compile(r"\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Answers of a terminal, such as its colours, that are no key presses."""
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O|[\]P^_X][^\x07\x1b]*\x1b?)?\Z")


class KeyDecoder:
    """Converts input, piece by piece, into keys. A sequence may be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._held = ""

    @property
    def waiting(self) -> bool:
        """Whether the input so far may be the beginning of a sequence, or the Escape key."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete with this input."""
        text = self._held + self._decoder.decode(data)
        keys, self._held = _decode(text)
        return keys

    def expire(self) -> list[str]:
        """The keys after a timeout without input: a single escape character is the Escape key."""
        held, self._held = self._held, ""
        return ["escape"] if held == "\x1b" else []


def _decode(text: str) -> tuple[list[str], str]:
    """The keys of a text, and its rest, which is the beginning of a sequence."""
    keys: list[str] = []
    place = 0
    while place < len(text):
        if text[place] != "\x1b":
            keys += _single(text[place])
            place += 1
            continue
        if _INCOMPLETE.match(text, place) and len(text) - place < _LONGEST_SEQUENCE:
            return keys, text[place:]
        key, place = _sequence(text, place)
        keys += key
    return keys, ""


def _single(character: str) -> list[str]:
    if character in _CONTROL:
        return [_CONTROL[character]]
    if character < " ":
        return [f"ctrl-{chr(ord(character) + 0x60)}"] if "\x01" <= character <= "\x1a" else []
    return [character] if character.isprintable() else []


def _sequence(text: str, place: int) -> tuple[list[str], int]:
    """The key of the escape sequence at a position, if known, and the position after it."""
    if found := _CSI.match(text, place):
        numbers, final = found.groups()
        known = _NUMBERED.get(numbers.split(";")[0]) if final == "~" else _FINAL.get(final)
        return [known] if known is not None else [], found.end()
    if found := _SS3.match(text, place):
        known = "enter" if found[1] == "M" else _FINAL.get(found[1])
        return [known] if known is not None else [], found.end()
    if found := _STRING.match(text, place):
        return [], found.end()
    # Escape and another key at once: Alt and that key, or both, typed faster than the delay.
    return ["escape"], place + 1
