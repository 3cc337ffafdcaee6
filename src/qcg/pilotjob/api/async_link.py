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
from qcg.pilotjob.api.link import CONNECT_TIMEOUT, REFUSED_TIMEOUT, Line, decode_answer, no_answer
from qcg.pilotjob.api.waiting import BEAT, WELCOME, Numbers, Wait, parse_event
from qcg.pilotjob.wire.contact import ClientsContact

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
        self._line.socket.send_multipart(frames, zmq.NOBLOCK)
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
        self._address = found.address
        self._numbers = itertools.count(1)
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}
        self._line = _AsyncLine(Line(context, zmq.DEALER, found, found.address), self._answer, self._fail)

    @property
    def is_usable(self) -> bool:
        return self._line.trouble is None

    async def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        number = b"%d" % next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._line.send([number, b"", body])
            return decode_answer(await asyncio.wait_for(answered, timeout))
        except asyncio.TimeoutError:
            self._line.trouble = no_answer(self._address, timeout)
            raise no_answer(self._address, timeout) from None
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
                answered.set_exception(type(trouble)(str(trouble)))


class AsyncEvents:
    """All waits of a client listen to one subscription."""

    TOPICS = ("JFI", "IFI", "NOJ")

    def __init__(self, context: Context, found: ClientsContact) -> None:
        line = Line(context, zmq.SUB, found, found.publisher)
        for topic in (*self.TOPICS, BEAT, WELCOME):
            line.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._waiting: dict[Wait, asyncio.Event] = {}
        self._numbers = Numbers(self.TOPICS)
        self._welcome = asyncio.Event()
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

    async def welcome(self) -> None:
        """From then on nothing is missed."""
        await self._welcome.wait()
        self._check()

    async def next(self, wait: Wait, silence: float) -> None:
        """Until something has happened that matters to this wait, or nothing was heard for so many seconds."""
        woken = self._waiting[wait]
        began = time.monotonic()
        while not woken.is_set():
            left = max(self._heard, began) + silence - time.monotonic()
            if left <= 0:
                wait.ask_again = True
                return
            try:
                await asyncio.wait_for(woken.wait(), left)
            except asyncio.TimeoutError:
                continue
        woken.clear()
        self._check()

    def close(self, reason: ConnectionError) -> None:
        self._line.trouble = self._line.trouble or reason
        self._line.close()
        self._wake_all()

    def _check(self) -> None:
        trouble = self._line.trouble
        if trouble is not None:
            raise type(trouble)(str(trouble))

    def _message(self, frames: list[bytes]) -> None:
        self._heard = time.monotonic()
        topic, data = parse_event(frames[0])
        if topic == WELCOME:
            self._welcome.set()
            return
        gap = self._numbers.is_gap(topic, data)
        for wait, woken in self._waiting.items():
            if gap:
                wait.ask_again = True
            if topic in wait.topics:
                wait.event(topic, data)
            if wait.over or wait.ask_again:
                woken.set()

    def _wake_all(self) -> None:
        self._welcome.set()
        for woken in self._waiting.values():
            woken.set()
