"""A program in a pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pyte
import pytest

from tests.support.waiting import wait_for

PATIENCE = 30.0
ALTERNATE = b"\x1b[?1049h"
NORMAL = b"\x1b[?1049l"
HIDE_CURSOR = b"\x1b[?25l"
SHOW_CURSOR = b"\x1b[?25h"


class PseudoTerminal:
    """A program with its own terminal, whose output is interpreted as a terminal emulator does."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        size: tuple[int, int] = (80, 24),
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._master, self._slave = os.openpty()
        os.set_blocking(self._master, False)
        self.written = b""
        self._set_size(size)
        self.modes_before = termios.tcgetattr(self._slave)
        # Python's readline sets these in the workers of pytest-xdist, and they would hide the size of this terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**inherited, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=self._take_terminal,
        )

    def _take_terminal(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _set_size(self, size: tuple[int, int]) -> None:
        columns, lines = size
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal as a window does: the kernel sends SIGWINCH."""
        self.read()
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())

    def read(self) -> None:
        """Interpret the output of the program since the last call."""
        try:
            while data := os.read(self._master, 65536):
                self.written += data
                self._stream.feed(data)
        except BlockingIOError:
            pass
        except OSError:
            pass  # the program has closed the terminal

    @property
    def lines(self) -> list[str]:
        self.read()
        return list(self._screen.display)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def style_at(self, text: str) -> pyte.screens.Char:
        """The first character of a text on the screen, with its colours."""
        for row, line in enumerate(self.lines):
            if text in line:
                return self._screen.buffer[row][line.index(text)]
        pytest.fail(f"{text!r} is not on the screen:\n{self.text}")

    def wait_for(self, *texts: str, absent: Sequence[str] = (), timeout: float = PATIENCE) -> str:
        """Wait until all these texts are on the screen, and return it."""
        __tracebackhide__ = True

        def shown() -> bool:
            text = self.text
            return all(part in text for part in texts) and not any(part in text for part in absent)

        return self._wait(shown, f"{texts} (without {absent})" if absent else f"{texts}", timeout)

    def wait_until(self, predicate: Callable[[str], object], what: str, timeout: float = PATIENCE) -> str:
        __tracebackhide__ = True
        return self._wait(lambda: bool(predicate(self.text)), what, timeout)

    def _wait(self, predicate: Callable[[], bool], what: str, timeout: float) -> str:
        __tracebackhide__ = True
        deadline = time.monotonic() + timeout
        while not predicate():
            if time.monotonic() > deadline or (self.process.poll() is not None and not predicate()):
                pytest.fail(
                    f"Timed out while waiting for {what}; exit code {self.process.poll()}; the screen is\n{self.text}"
                )
            time.sleep(0.01)
        return self.text

    def wait_for_exit(self, timeout: float = PATIENCE) -> int:
        def ended() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_for(ended, timeout, "the program to end")
        self.read()
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the modes, the normal screen and the cursor of the terminal are restored."""
        self.read()
        return (
            termios.tcgetattr(self._slave) == self.modes_before
            and self.written.rfind(NORMAL) >= self.written.rfind(ALTERNATE)
            and self.written.rfind(SHOW_CURSOR) >= self.written.rfind(HIDE_CURSOR)
        )

    def hang_up(self) -> None:
        """Close the terminal as a window does."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "tab": "\t",
    "backspace": "\x7f",
    "ctrl-c": "\x03",
    "ctrl-l": "\x0c",
    "ctrl-z": "\x1a",
    "space": " ",
}

_SEQUENCES = re.compile(rb"\x1b(?:\[\??[0-9;]*[A-Za-z]|\][^\x07]*\x07)")


def text_written(data: bytes) -> str:
    """The output without the sequences that place and colour it."""
    return _SEQUENCES.sub(b"", data).decode(errors="replace")
