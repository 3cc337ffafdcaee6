"""Connections of the asyncio client, without blocking calls and threads."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from qcg.pilotjob.api.connection import CONNECT_TIMEOUT, REFUSED_TIMEOUT, Connection, NoAnswer, copy_of, decode_answer
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.waits import BEAT, WELCOME, EventNumbers, Wait, parse_event
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.parts import request_frames
from qcg.pilotjob.wire.sockets import SocketReader, receive_all

TICK = 0.001
"""Seconds added to timers, which may fire a little early."""
Context = zmq.Context[zmq.Socket[bytes]]


class _AsyncConnection:
    """A connection that passes messages and errors to callbacks."""

    def __init__(
        self,
        connection: Connection,
        on_message: Callable[[list[bytes]], None],
        on_trouble: Callable[[ConnectionError], None],
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_trouble = on_trouble
        self.trouble: ConnectionError | None = None
        self._loop = asyncio.get_running_loop()
        self._reader = SocketReader(self._loop, connection.socket, self._receive)
        self._monitor_reader = SocketReader(self._loop, connection.monitor, self._check)
        self._impatience = [self._loop.call_later(wait, self._check) for wait in (REFUSED_TIMEOUT, CONNECT_TIMEOUT)]
        self._check()

    def send(self, frames: list[bytes]) -> None:
        self._connection.send(frames)
        self._reader.check()

    def close(self, reason: ConnectionError | None = None) -> None:
        """`reason`: the trouble of a connection that had none."""
        self.trouble = self.trouble or reason
        if self._connection.socket.closed:
            return
        for timer in self._impatience:
            timer.cancel()
        self._reader.close()
        self._monitor_reader.close()
        self._connection.close()

    def _receive(self) -> None:
        for frames in receive_all(self._connection.socket):
            self._on_message(frames)

    def _check(self) -> None:
        if self.trouble is not None or self._connection.socket.closed:
            return
        try:
            self._connection.check()
        except ConnectionError as trouble:
            self._receive()  # answers that arrived before the connection was lost
            self.trouble = trouble
            self._on_trouble(trouble)


class AsyncRequests:
    """Sends many requests at once over one connection; numbers match answers to requests."""

    def __init__(self, context: Context, found: ClientsContact) -> None:
        self._numbers = itertools.count(1)
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}
        connection = Connection(context, zmq.DEALER, found, found.address)
        self._connection = _AsyncConnection(connection, self._answer, self._fail)

    @property
    def is_usable(self) -> bool:
        return self._connection.trouble is None

    async def ask(self, body: bytes, timeout: float) -> dict[str, Any]:
        """Return the answer; raises NoAnswer when none comes in time. Other requests are not affected."""
        if self._connection.trouble is not None:  # the callback has been called before this request
            raise copy_of(self._connection.trouble)
        number = b"%d" % next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._connection.send([number, b"", *request_frames(body)])
            return decode_answer(await asyncio.wait_for(answered, timeout))
        except asyncio.TimeoutError:
            raise NoAnswer from None
        finally:
            del self._asked[number]

    def close(self, reason: ConnectionError) -> None:
        self._connection.close()
        self._fail(reason)

    def _answer(self, frames: list[bytes]) -> None:
        answered = self._asked.get(frames[0])
        if answered is not None and not answered.done():
            answered.set_result(frames[-1])

    def _fail(self, trouble: ConnectionError) -> None:
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(copy_of(trouble))


class AsyncEvents:
    """One subscription, shared by all waits of a client for the same topics."""

    def __init__(self, context: Context, found: ClientsContact, topics: tuple[str, ...]) -> None:
        connection = Connection(context, zmq.SUB, found, found.publisher)
        for topic in (*topics, BEAT, WELCOME):
            connection.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._waiting: dict[Wait, asyncio.Event] = {}
        self._numbers = EventNumbers(topics)
        self._welcome = False
        self._heard = time.monotonic()
        self._connection = _AsyncConnection(connection, self._message, lambda trouble: self._wake_all())

    @property
    def is_usable(self) -> bool:
        return self._connection.trouble is None

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    @contextmanager
    def following(self, wait: Wait) -> Iterator[None]:
        """Pass events to a wait inside this context."""
        self._waiting[wait] = asyncio.Event()
        try:
            yield
        finally:
            del self._waiting[wait]

    async def welcome(self, wait: Wait, patience: float) -> None:
        """Wait for the confirmation of the subscription, after which no event is missed; or for so many seconds."""
        deadline = time.monotonic() + patience
        while not self._welcome and time.monotonic() < deadline:
            await self._woken(wait, deadline)
            self._check()

    async def next(self, wait: Wait, silence: float) -> None:
        """Wait for an event that matters to this wait, or for so many seconds of silence."""
        began = time.monotonic()
        while True:
            # Without a confirmed subscription, received messages do not prove that none is missing.
            deadline = silence + (max(self._heard, began) if self._welcome else began)
            if time.monotonic() >= deadline:
                wait.ask_again()
                return
            if await self._woken(wait, deadline):
                self._check()
                return

    async def _woken(self, wait: Wait, deadline: float) -> bool:
        """Wait until woken; returns False at the deadline. (`asyncio.wait_for` can lose a cancellation.)"""
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
        self._connection.close(reason)
        self._wake_all()

    def _check(self) -> None:
        trouble = self._connection.trouble
        if trouble is not None:
            raise copy_of(trouble)

    def _message(self, frames: list[bytes]) -> None:
        self._heard = time.monotonic()
        topic, data = parse_event(frames[0])
        if topic == WELCOME:
            self._welcome = True
            for wait, woken in self._waiting.items():
                wait.ask_again()  # an answer from before the subscription may be outdated
                woken.set()
            return
        gap = self._numbers.has_gap(topic, data)
        for wait, woken in self._waiting.items():
            if gap:
                wait.ask_again()
            if topic != BEAT:
                wait.event(topic, data)
            if wait.over or wait.must_ask:
                woken.set()

    def _wake_all(self) -> None:
        for woken in self._waiting.values():
            woken.set()
