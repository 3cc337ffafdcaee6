"""The connections of a client with an event loop. Nothing here blocks, and there are no threads."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.link import CONNECT_TIMEOUT, REFUSED_TIMEOUT, Line, NoAnswer, again, decode_answer
from qcg.pilotjob.api.waiting import BEAT, WELCOME, Numbers, Wait, parse_event
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.parts import request_frames

TICK = 0.001
"""Seconds, so that a timer for a moment does not ring before it."""
Context = zmq.Context[zmq.Socket[bytes]]


class _AsyncLine:
    """A line whose messages and troubles are told as they come."""

    def __init__(
        self, line: Line, on_message: Callable[[list[bytes]], None], on_trouble: Callable[[ConnectionError], None]
    ) -> None:
        self._line = line
        self._on_message = on_message
        self._on_trouble = on_trouble
        self.trouble: ConnectionError | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line.socket, self._drain)
        self._loop.add_reader(line.monitor, self._look)
        self._impatience = [self._loop.call_later(wait, self._look) for wait in (REFUSED_TIMEOUT, CONNECT_TIMEOUT)]
        # A descriptor signals only what comes after somebody has looked in vain.
        self._drain_later()
        self._look()

    def send(self, frames: list[bytes]) -> None:
        self._line.send(frames)
        self._drain_later()

    def close(self) -> None:
        if self._line.socket.closed:
            return
        for timer in self._impatience:
            timer.cancel()
        self._loop.remove_reader(self._line.socket)
        self._loop.remove_reader(self._line.monitor)
        self._line.close()

    def _drain_later(self) -> None:
        """The descriptor signals edges only: what arrived unnoticed would be left lying."""
        if int(self._line.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while not self._line.socket.closed:
            try:
                self._on_message(self._line.socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _look(self) -> None:
        if self.trouble is not None or self._line.socket.closed:
            return
        try:
            self._line.check()
        except ConnectionError as trouble:
            self._drain()  # an answer that came before the end is an answer
            self.trouble = trouble
            self._on_trouble(trouble)


class AsyncRequests:
    """Many requests at once over one line; each answer finds the one who asked by its number."""

    def __init__(self, context: Context, found: ClientsContact) -> None:
        self._numbers = itertools.count(1)
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}
        self._line = _AsyncLine(Line(context, zmq.DEALER, found, found.address), self._answer, self._fail)

    @property
    def is_usable(self) -> bool:
        return self._line.trouble is None

    async def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        """The answer; `NoAnswer` when none comes in time. Others may get theirs all the same."""
        if self._line.trouble is not None:  # it may have come before anybody could ask, and is told once
            raise again(self._line.trouble)
        number = b"%d" % next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._line.send([number, b"", *request_frames(body)])
            return decode_answer(await asyncio.wait_for(answered, timeout))
        except asyncio.TimeoutError:
            raise NoAnswer from None
        finally:
            del self._asked[number]

    def close(self, reason: ConnectionError) -> None:
        self._line.close()
        self._fail(reason)

    def _answer(self, frames: list[bytes]) -> None:
        answered = self._asked.get(frames[0])
        if answered is not None and not answered.done():
            answered.set_result(frames[-1])

    def _fail(self, trouble: ConnectionError) -> None:
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(again(trouble))


class AsyncEvents:
    """All waits of a client for the same topics listen to one subscription."""

    def __init__(self, context: Context, found: ClientsContact, topics: tuple[str, ...]) -> None:
        line = Line(context, zmq.SUB, found, found.publisher)
        for topic in (*topics, BEAT, WELCOME):
            line.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._waiting: dict[Wait, asyncio.Event] = {}
        self._numbers = Numbers(topics)
        self._welcome = False
        self._heard = time.monotonic()
        self._line = _AsyncLine(line, self._message, lambda trouble: self._wake_all())

    @property
    def is_usable(self) -> bool:
        return self._line.trouble is None

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    @contextmanager
    def following(self, wait: Wait) -> Iterator[None]:
        """From now on the wait hears of events."""
        self._waiting[wait] = asyncio.Event()
        try:
            yield
        finally:
            del self._waiting[wait]

    async def welcome(self, wait: Wait, patience: float) -> None:
        """From then on nothing is missed. When it does not come in time, asking has to do."""
        deadline = time.monotonic() + patience
        while not self._welcome and time.monotonic() < deadline:
            await self._woken(wait, deadline)
            self._check()

    async def next(self, wait: Wait, silence: float) -> None:
        """Until something has happened that matters to this wait, or nothing was heard for so many seconds."""
        began = time.monotonic()
        while True:
            # What is heard without a welcome proves nothing.
            deadline = silence + (max(self._heard, began) if self._welcome else began)
            if time.monotonic() >= deadline:
                wait.ask_again = True
                return
            if await self._woken(wait, deadline):
                self._check()
                return

    async def _woken(self, wait: Wait, deadline: float) -> bool:
        """Until something has happened, or it is late. (`asyncio.wait_for` can lose a cancellation.)"""
        woken = self._waiting[wait]
        late = False

        def ring() -> None:
            nonlocal late
            late = not woken.is_set()
            woken.set()

        timer = asyncio.get_running_loop().call_later(max(deadline - time.monotonic(), 0) + TICK, ring)
        try:
            await woken.wait()
        finally:
            timer.cancel()
        woken.clear()
        return not late

    def close(self, reason: ConnectionError) -> None:
        self._line.trouble = self._line.trouble or reason
        self._line.close()
        self._wake_all()

    def _check(self) -> None:
        trouble = self._line.trouble
        if trouble is not None:
            raise again(trouble)

    def _message(self, frames: list[bytes]) -> None:
        self._heard = time.monotonic()
        topic, data = parse_event(frames[0])
        if topic == WELCOME:
            self._welcome = True
            for wait, woken in self._waiting.items():
                wait.ask_again = True  # what was asked before it is not certain
                woken.set()
            return
        gap = self._numbers.is_gap(topic, data)
        for wait, woken in self._waiting.items():
            if gap:
                wait.ask_again = True
            if topic != BEAT:
                wait.event(topic, data)
            if wait.over or wait.ask_again:
                woken.set()

    def _wake_all(self) -> None:
        for woken in self._waiting.values():
            woken.set()
