"""The terminal: its abilities, its modes, and drawing. Modes are always restored."""

from __future__ import annotations

import io
import os
import select
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rich.console import Console
from rich.text import Text

from qcg.pilotjob.top.model import Look, Size

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The alternate screen, no cursor, no wrapping at the edge, nothing on the screen."""
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_WITHOUT_COLOUR = ("vt52", "vt100", "vt102", "vt220")
DEFAULT_SIZE = Size(80, 24)


def why_unusable(environ: Mapping[str, str], *, on_terminal: bool) -> str:
    """A sentence about why no screen can be drawn; empty if it can."""
    instead = "qcg-pm status and qcg-pm jobs print the state of a run"
    if not on_terminal:
        return f"qcg-pm top needs a terminal for its keys and its screen; {instead}"
    term = environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        return f"the terminal cannot place text on the screen (TERM is {term or 'not set'!r}); {instead}"
    return ""


def look_of(environ: Mapping[str, str], encoding: str, *, ascii_only: bool = False) -> Look:
    """The abilities of a terminal, by the environment and the encoding of stdout."""
    term = environ.get("TERM", "")
    plain = term in _WITHOUT_COLOUR or term.endswith(("-m", "-mono"))
    # Python writes UTF-8 in the locale C, whatever the terminal reads.
    unicode = encoding.lower().replace("-", "") == "utf8" and environ.get("LC_ALL", "") not in ("C", "POSIX")
    return Look(ascii=ascii_only or not unicode, colour=not plain and not environ.get("NO_COLOR"))


class TerminalGone(Exception):
    """The window was closed, or the connection to it was lost."""


class Terminal:
    """A terminal in the alternate screen. `leave` may be called at any time, and more than once."""

    def __init__(self, input_fd: int, output_fd: int, look: Look) -> None:
        self._input = input_fd
        self._output = output_fd
        self._saved = termios.tcgetattr(input_fd)
        self._entered = False
        self._drawn: list[str] = []
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            legacy_windows=False,
            color_system="auto" if look.colour else None,
            no_color=not look.colour,
            highlight=False,
            markup=False,
            emoji=False,
            width=DEFAULT_SIZE.width,
        )

    def enter(self) -> None:
        """Switch the terminal to raw input and to the alternate screen."""
        self._entered = True
        try:
            self._set_modes()
        except termios.error:
            raise TerminalGone from None
        self._write(_ENTER)
        self._drawn = []

    def _set_modes(self) -> None:
        modes = termios.tcgetattr(self._input)
        modes[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        modes[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSADRAIN, modes)

    def leave(self) -> None:
        """Restore the modes and the screen of the terminal."""
        if not self._entered:
            return
        self._entered = False
        # A closed terminal needs no restoring.
        with suppress(TerminalGone):
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._saved)

    def size(self) -> Size:
        try:
            size = os.get_terminal_size(self._output)
        except OSError:
            return DEFAULT_SIZE
        return Size(size.columns or DEFAULT_SIZE.width, size.lines or DEFAULT_SIZE.height)

    def read(self) -> bytes:
        """The typed bytes."""
        try:
            data = os.read(self._input, 4096)
        except OSError:
            data = b""
        if not data:
            raise TerminalGone
        return data

    def draw(self, lines: Sequence[Text], *, everything: bool = False) -> None:
        """Show these lines; only changed lines are written."""
        if everything or len(lines) != len(self._drawn):
            self._drawn = []
        new = [self._encode(line) for line in lines]
        known = self._drawn or [""] * len(new)
        changes = [
            f"\x1b[{place + 1};1H{line}\x1b[K"
            for place, (line, before) in enumerate(zip(new, known, strict=True))
            if line != before or not self._drawn
        ]
        if changes:
            self._write(("" if self._drawn else "\x1b[2J") + "".join(changes))
        self._drawn = new

    def _encode(self, line: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="", soft_wrap=True)
        return capture.get()

    def _write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            try:
                data = data[os.write(self._output, data) :]
            except BlockingIOError:  # another program has made the terminal non-blocking
                select.select([], [self._output], [])
            except OSError:
                raise TerminalGone from None
