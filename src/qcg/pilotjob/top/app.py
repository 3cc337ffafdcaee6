"""The loop of the terminal view: keys, signals and changes of the run become events, and the model is drawn."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from qcg.pilotjob.top.keys import ESCAPE_DELAY, KeyDecoder
from qcg.pilotjob.top.model import (
    Act,
    Effect,
    Event,
    FetchJob,
    FetchOutput,
    FetchRows,
    Key,
    Look,
    Model,
    Quit,
    Redraw,
    Resized,
    Suspend,
    Tick,
)
from qcg.pilotjob.top.render import screen
from qcg.pilotjob.top.terminal import Terminal, TerminalGone
from qcg.pilotjob.top.update import handle
from qcg.pilotjob.top.workers import Defect, Workers
from qcg.pilotjob.watch.source import RunSource

TICK = 1.0
FOLLOW_TICK = 0.5
"""Seconds between two ticks, and while output is followed."""
SHORTEST_FRAME = 0.03
"""Seconds between two drawings of the screen."""


def run_top(source: RunSource, look: Look, input_fd: int = 0, output_fd: int = 1) -> None:
    """Show a run until the user quits or the terminal is gone. The terminal is always restored."""
    terminal = Terminal(input_fd, output_fd, look)
    with _wakeups() as (wake_read, wake):
        app = _App(source, terminal, look, input_fd, wake_read, wake)
        try:
            app.run()
        except TerminalGone:
            pass
        finally:
            terminal.leave()
            app.end()


@contextmanager
def _wakeups() -> Iterator[tuple[int, Callable[[], None]]]:
    """A pipe that wakes the loop, and the function that writes to it; signals write to it too."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    open_pipe = [write_end]

    def wake() -> None:
        try:
            for end in open_pipe:
                os.write(end, b"\0")
        except BlockingIOError:
            pass  # it is awake

    try:
        yield read_end, wake
    finally:
        signal.set_wakeup_fd(before)
        open_pipe.clear()
        os.close(read_end)
        os.close(write_end)


class _App:
    def __init__(
        self,
        source: RunSource,
        terminal: Terminal,
        look: Look,
        input_fd: int,
        wake_read: int,
        wake: Callable[[], None],
    ) -> None:
        self._terminal = terminal
        self._input_fd = input_fd
        self._wake_read = wake_read
        self._wake = wake
        self._events: deque[Event | Defect] = deque()
        self._signals: set[int] = set()
        self._keys = KeyDecoder()
        self._model = Model(terminal.size(), time.time(), look)
        self._drawn: Model | None = None
        self._drawn_at = 0.0
        self._ticked = time.monotonic()
        self._quit = False
        self._handlers: dict[int, Any] = {}
        self._workers = Workers(source, self._post)

    def run(self) -> None:
        for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._handlers[number] = signal.signal(number, lambda number, frame: self._signals.add(number))
        self._terminal.enter()
        while not self._quit:
            self._draw()
            self._await_input()
            self._handle_signals()
            while self._events and not self._quit:
                event = self._events.popleft()
                if isinstance(event, Defect):
                    raise event.error
                self._step(event)

    def end(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._workers.end()

    def _post(self, event: Event | Defect) -> None:
        self._events.append(event)
        self._wake()

    def _step(self, event: Event) -> None:
        self._model, effects = handle(self._model, event)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Quit):
            self._quit = True
        elif isinstance(effect, Redraw):
            self._drawn = None
            self._terminal.enter()
        elif isinstance(effect, Suspend):
            self._suspend(0)
        else:
            assert isinstance(effect, (FetchRows, FetchJob, FetchOutput, Act))
            self._workers.want(effect)

    def _await_input(self) -> None:
        """Wait for keys, changes, signals or the next tick, and turn them into events."""
        now = time.monotonic()
        interval = FOLLOW_TICK if self._model.view == "output" else TICK
        timeout = self._ticked + interval - now
        if self._model is not self._drawn:
            timeout = min(timeout, self._drawn_at + SHORTEST_FRAME - now)
        if self._keys.waiting:
            timeout = min(timeout, ESCAPE_DELAY)
        ready, _, _ = select.select([self._input_fd, self._wake_read], [], [], max(0.0, timeout))
        if self._wake_read in ready:
            self._drain()
        if self._input_fd in ready:
            self._events.extend(map(Key, self._keys.feed(self._terminal.read())))
        elif self._keys.waiting and not ready:
            self._events.extend(map(Key, self._keys.expire()))
        if time.monotonic() >= self._ticked + interval:
            self._ticked = time.monotonic()
            self._events.append(Tick(time.time()))

    def _drain(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _handle_signals(self) -> None:
        signals, self._signals = self._signals, set()
        if signal.SIGTSTP in signals:
            self._suspend(os.getpid())
        elif signal.SIGCONT in signals:
            # The shell has used the terminal in the meantime.
            self._terminal.enter()
            self._drawn = None
        if signal.SIGWINCH in signals:
            self._resize()

    def _resize(self) -> None:
        self._drawn = None
        self._events.append(Resized(self._terminal.size()))

    def _suspend(self, process: int) -> None:
        """Restore the terminal and stop until the shell continues this process. 0: the whole process group."""
        self._terminal.leave()
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(process, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        self._signals.clear()
        self._terminal.enter()
        self._resize()

    def _draw(self) -> None:
        now = time.monotonic()
        if self._model is self._drawn or (self._drawn is not None and now < self._drawn_at + SHORTEST_FRAME):
            return
        self._terminal.draw(screen(self._model, self._model.size), everything=self._drawn is None)
        self._drawn, self._drawn_at = self._model, now
