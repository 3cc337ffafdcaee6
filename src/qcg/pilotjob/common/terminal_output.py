"""Shows the output of programs on a terminal with control characters escaped."""

from __future__ import annotations

import codecs
import re
import sys
from types import TracebackType

from qcg.pilotjob.common.printable import printable_lines

_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,60}m)")
_RESET = "\x1b[0m"
_CUT_OFF = re.compile(r"(?:\r|\x1b(?:\[[0-9;:]{0,60})?)\Z")
"""The incomplete start of a colour code or a line break at the end of the data."""


class TerminalText:
    """Converts bytes, piece by piece, into text that is safe on a terminal.

    Colours stay, and a carriage return begins a new line. Every other control character, and every byte that is not
    UTF-8, is escaped.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        self._coloured = False

    def feed(self, data: bytes) -> str:
        text = self._held + self._decoder.decode(data)
        cut_off = _CUT_OFF.search(text)
        self._held = cut_off[0] if cut_off else ""
        return self._safe(text.removesuffix(self._held))

    def end(self) -> str:
        """The rest of the text, and a reset of colours."""
        rest = self._safe(self._held + self._decoder.decode(b"", final=True))
        return rest + (_RESET if self._coloured else "")

    def _safe(self, text: str) -> str:
        parts = _COLOUR.split(text)
        self._coloured = self._coloured or len(parts) > 1
        parts[::2] = [printable_lines(part.replace("\r\n", "\n").replace("\r", "\n")) for part in parts[::2]]
        return "".join(parts)


class ProgramOutput:
    """Writes output of a program to stdout: unchanged to files and pipes, escaped to a terminal."""

    def __init__(self, *, raw: bool = False) -> None:
        """`raw`: unchanged to a terminal, too."""
        self._text = None if raw or not sys.stdout.isatty() else TerminalText()

    def write(self, data: bytes) -> None:
        if self._text is None:
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(self._text.feed(data))

    def flush(self) -> None:
        sys.stdout.flush()

    def __enter__(self) -> ProgramOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._text is not None:
            sys.stdout.write(self._text.end())
            sys.stdout.flush()
