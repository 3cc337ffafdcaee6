"""Texts with control characters that are harmful when printed, and a search for them in output."""

from __future__ import annotations

import unicodedata

HOSTILE = {
    "clear screen": "a\x1b[2Jb",
    "window title": "a\x1b]0;owned\x07b",
    "clipboard": "a\x1b]52;c;cm0gLXJm\x1b\\b",
    "8-bit control sequence": "a\x9b2Jb",
    "8-bit operating system command": "a\x9d0;owned\x9cb",
    "next line": "a\x85b",
    "backspace": "a\x08b",
    "bell": "a\x07b",
    "delete": "a\x7fb",
    "null": "a\x00b",
    "carriage return": "harmless\rb",
    "line break": "a\n2026-01-01 00:00:00,000 INFO    forged entry",
    "line separator": "a\u2028b",
    "right-to-left override": "a\u202egnp.exe",
    "isolate": "a\u2067b\u2069",
    "arabic letter mark": "a\u061cb",
    "zero-width space": "a\u200bb",
    "zero-width joiner": "a\u200db",
    "byte order mark": "a\ufeffb",
    "soft hyphen": "a\xadb",
    "hangul filler": "a\u3164b",
    "combining grapheme joiner": "a\u034fb",
    "tag letters": "a\U000e0041\U000e0042b",
    "variation selector": "a\U000e0101b",
    "lone surrogate": "a\ud800b",
    "byte of another encoding": "a\udc9bb",
    "private use": "a\ue000b",
}
"""Hostile texts by kind."""

HARMLESS = [
    "plain",
    "with space",
    "zażółć gęślą jaźń",
    "数値計算",
    "σ²/μ",
    "naïve",
    "été à la française",
    "❤️",
    "שלום",
    "日\u3000本",
]
"""Legitimate texts that must be shown unchanged."""

_INVISIBLE = {0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xE0100, 0xE01F0)}


def harm_in(text: str, allowed: str = "\n") -> list[str]:
    """Every character of a text that a terminal would interpret, reorder by, or not show."""
    return [
        f"U+{ord(character):04X} in {text[max(place - 20, 0) : place + 20]!r}"
        for place, character in enumerate(text)
        if character not in allowed
        and (unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or ord(character) in _INVISIBLE)
    ]
