"""How requests reach the far side of one address: over one channel that stays open, or with one command for each."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Any, NoReturn, Protocol

from qcg.pilotjob.executors.ssh.bootstrap_line import first_lines, is_needed
from qcg.pilotjob.executors.ssh.child import Child
from qcg.pilotjob.executors.ssh.commands import Control, far_command, ssh_command
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import (
    ConnectionProblem,
    SessionRefused,
    SubCommandRefused,
    check_advice,
    failure,
    not_startable,
)
from qcg.pilotjob.executors.ssh.frames import Frame, FrameError, FrameReader, new_marker, request_frame
from qcg.pilotjob.executors.ssh.zipapp import far_program

log = logging.getLogger(__name__)

LOGIN_PATIENCE = 60.0
"""Seconds from the start of ssh to the first answer of the far side: logins run the user's shell scripts."""
CALL_PATIENCE = 120.0
"""Seconds for the answer to one command in one-shot mode."""
SESSION_PAUSES = (0.2, 0.5, 1.0)
"""Seconds before further tries of a command for which a shared connection had no free session."""
BEAT_INTERVAL = 5
"""Seconds between two heartbeats on a channel."""
SILENCE = 10
"""Seconds after which a channel is given up if no byte arrives and ssh takes none."""
SLOWEST_LINK = 32 << 10
"""Bytes in a second that are expected of the slowest link: requests on their way prolong the patience for answers."""
MOST_ON_THE_WAY = 2 << 20
"""Bytes that ssh and the network may hold at once."""
_TICK = 1.0
_LAST_WORDS = 2.0
"""Seconds for ssh to exit and to say why, after its output has ended."""

Replaced = tuple[bytes, bytes]


class RemoteError(Exception):
    """The far side has answered with an error. The message is its sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class ChannelObserver(Protocol):
    """Receives messages of a channel that answer no request."""

    def event(self, event: dict[str, Any]) -> None: ...

    def ended(self, problem: ConnectionProblem) -> None:
        """The channel is lost. Called at most once, and not after `close`."""


class Transport(ABC):
    """A way to call the far side. Requests have the key `do`; number and marker are added here."""

    def __init__(self, config: HostConfig, address: str, run: str, control: Control) -> None:
        """`run`: the run directory there, relative to the home directory or absolute."""
        self.config = config
        self.address = address
        self._run = run
        self._control = control

    @abstractmethod
    async def open(self) -> None:
        """Make the connection, where it stays open. Raises ConnectionProblem."""

    @abstractmethod
    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: Replaced | None = None) -> Frame:
        """Send a request and wait for its reply. `replaced`: as for `request_frame`.

        Raises: ConnectionProblem when there is none; RemoteError when it is an error.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection. Requests without a reply fail."""

    async def _begin(self, sub_command: str, marker: str) -> tuple[Child, FrameReader]:
        """Start ssh with a far command, and send the program where the host does not have it."""
        far = far_command(self.config, sub_command, self._run)
        argv = ssh_command(self.config, self.address, self._control, far, stdin=True)
        try:
            child = await Child.start(argv)
        except OSError as error:
            raise not_startable(self.config, argv[0], error) from None
        frames = FrameReader(child.stdout, marker)
        if not self.config.command:
            try:
                await asyncio.wait_for(self._bootstrap(child, frames, marker), LOGIN_PATIENCE)
            except (asyncio.TimeoutError, TimeoutError):
                child.close()
                raise self._no_answer(LOGIN_PATIENCE) from None
            except (ConnectionError, FrameError, ValueError):
                raise await self._failure(child, frames) from None
            except BaseException:
                child.close()
                raise
        return child, frames

    async def _bootstrap(self, child: Child, frames: FrameReader, marker: str) -> None:
        program = far_program()
        await child.write(first_lines(marker, program))
        answer = await frames.line()
        if answer is None:
            raise ConnectionError
        if is_needed(answer):
            log.info("%s gets the far program (%d bytes)", self.config.name, len(program.content))
            await child.write(program.content)

    async def _failure(self, child: Child, frames: FrameReader) -> ConnectionProblem:
        code = await child.end(_LAST_WORDS)
        return failure(self.config, self.address, code, child.errors, frames.noise)

    def _no_answer(self, seconds: float) -> ConnectionProblem:
        return ConnectionProblem(
            f"{self.address} has not answered for {seconds:g} s{check_advice(self.config.name)}", by_network=True
        )


class ServeTransport(Transport):
    """One channel to `remote-serve`, which stays open. Its connection is shared with rsync and other commands."""

    def __init__(self, config: HostConfig, address: str, run: str, control: Control, observer: ChannelObserver) -> None:
        super().__init__(config, address, run, control)
        self._observer = observer
        self._marker = new_marker()
        self._child: Child | None = None
        self._frames: FrameReader | None = None
        self._tasks: list[asyncio.Future[None]] = []
        self._replies: dict[int, asyncio.Future[Frame]] = {}
        """By number, the replies that callers wait for."""
        self._taken = asyncio.Event()
        """Set when a caller has got its reply."""
        self._number = 0
        self._unanswered: dict[int, int] = {}
        """By number, the bytes of requests without a reply."""
        self._problem: ConnectionProblem | None = None
        self._closed = False

    async def open(self) -> None:
        self._child, self._frames = await self._begin("remote-serve", self._marker)
        self._tasks.append(asyncio.ensure_future(self._read(self._child, self._frames)))

    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: Replaced | None = None) -> Frame:
        if self._child is None or self._problem is not None:
            raise self._problem or ConnectionProblem(f"there is no connection to {self.config.name}")
        self._number += 1
        number = self._number
        reply: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        frame = request_frame({**request, "n": number, "marker": self._marker}, payload, replaced)
        self._unanswered[number] = len(frame)
        try:
            await self._child.write(frame)
            answer = await asyncio.wait_for(reply, LOGIN_PATIENCE) if number == 1 else await reply
        except ConnectionError:
            # The reader knows the reason as soon as ssh has ended.
            answer = await reply
        except (asyncio.TimeoutError, TimeoutError):
            raise self._no_answer(LOGIN_PATIENCE) from None
        finally:
            self._replies.pop(number, None)
            self._unanswered.pop(number, None)
            self._taken.set()
        if number == 1 and self._frames is not None:
            self._tasks.append(asyncio.ensure_future(self._beat(self._child, self._frames)))
        return checked(answer)

    def close(self) -> None:
        self._closed = True
        self._end(ConnectionProblem(f"the connection to {self.config.name} was closed"))

    def _end(self, problem: ConnectionProblem) -> None:
        if self._problem is None:
            self._problem = problem
        for task in self._tasks:
            task.cancel()
        if self._child is not None:
            self._child.close()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(self._problem)
                reply.exception()  # some callers are gone

    def _lost(self, problem: ConnectionProblem) -> None:
        if self._closed or self._problem is not None:
            return
        self._end(problem)
        self._observer.ended(problem)

    async def _read(self, child: Child, frames: FrameReader) -> None:
        try:
            while (frame := await frames.frame()) is not None:
                if "event" in frame.head:
                    self._observer.event(frame.head)
                    continue
                number = frame.head.get("n", 0)
                reply = self._replies.get(number)
                if reply is not None and not reply.done():
                    reply.set_result(frame)
                    await self._until_taken(number)
                elif frame.head.get("n") is None and not frame.head.get("ok", True):
                    # The far side could not even read a request, or a gate answered for it.
                    raise_for(frame)
        except FrameError as error:
            self._lost(ConnectionProblem(f"{error}; the connection to {self.config.name} was closed"))
            return
        except ConnectionProblem as problem:
            self._lost(problem)
            return
        except RemoteError as error:
            self._lost(ConnectionProblem(f"{self.config.name}: {error}"))
            return
        self._lost(await self._failure(child, frames))

    async def _until_taken(self, number: int) -> None:
        """Wait until the caller has got its reply. Frames that follow are younger: a record that overtook those in the
        reply to a poll would let them look as if they had arrived before."""
        while number in self._replies:
            self._taken.clear()
            await self._taken.wait()

    async def _beat(self, child: Child, frames: FrameReader) -> None:
        ticks = silent = received = unwritten = 0
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1
            # Counted in ticks: when this process itself was stopped, answers wait in the pipe.
            silent += 1
            if frames.received != received or child.unwritten < unwritten:
                silent = 0
            patience = SILENCE + min(sum(self._unanswered.values()), MOST_ON_THE_WAY) / SLOWEST_LINK
            if silent > patience:
                self._lost(self._no_answer(int(patience)))
                return
            if ticks % BEAT_INTERVAL == 0:
                child.stdin.write(request_frame({"do": "beat", "n": 0, "marker": self._marker}))
            received, unwritten = frames.received, child.unwritten


class OneShotTransport(Transport):
    """One ssh command for each request, one after another: a host sees at most one new connection at a time."""

    def __init__(self, config: HostConfig, address: str, run: str, control: Control) -> None:
        super().__init__(config, address, run, control)
        self._turn = asyncio.Lock()
        self._children: set[Child] = set()
        self._closed = False

    async def open(self) -> None:
        return

    async def call(self, request: dict[str, Any], payload: bytes = b"", replaced: Replaced | None = None) -> Frame:
        async with self._turn:
            for pause in SESSION_PAUSES:
                try:
                    return await self._call_once(request, payload, replaced)
                except SessionRefused:  # the session of the command before is still being closed on the host
                    await asyncio.sleep(pause)
            return await self._call_once(request, payload, replaced)

    async def _call_once(self, request: dict[str, Any], payload: bytes, replaced: Replaced | None) -> Frame:
        if self._closed:
            raise ConnectionProblem(f"the connection to {self.config.name} was closed")
        marker = new_marker()
        child, frames = await self._begin(request["do"], marker)
        self._children.add(child)
        try:
            frame = request_frame({**request, "n": 1, "marker": marker}, payload, replaced)
            patience = CALL_PATIENCE + len(frame) / SLOWEST_LINK
            answer = await asyncio.wait_for(self._converse(child, frames, frame), patience)
            if answer is None:
                raise await self._failure(child, frames)
            return checked(answer)
        except FrameError as error:
            raise ConnectionProblem(f"{error} ({self.config.name})") from None
        except (asyncio.TimeoutError, TimeoutError):
            raise self._no_answer(round(patience)) from None
        finally:
            self._children.discard(child)
            child.close()

    async def _converse(self, child: Child, frames: FrameReader, frame: bytes, *, more: bool = False) -> Frame | None:
        """Send the request, and wait for the answer. `more`: the input stays open."""
        try:
            await child.write(frame)
            if not more:
                child.stdin.close()
        except ConnectionError:
            return None
        return await frames.frame()

    def close(self) -> None:
        self._closed = True
        for child in list(self._children):
            child.close()


def checked(frame: Frame) -> Frame:
    """The frame, unless it reports an error."""
    if not frame.head.get("ok", False):
        raise_for(frame)
    return frame


def raise_for(frame: Frame) -> NoReturn:
    """Raise the error that a frame reports."""
    code, sentence = str(frame.head.get("code", "failed")), str(frame.head.get("error", "no reason was given"))
    if code == "refused":
        raise SubCommandRefused(sentence)
    raise RemoteError(code, sentence)
