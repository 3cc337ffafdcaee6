"""Authentication of connections in the event loop, in the turn in which they ask for it."""

from __future__ import annotations

import asyncio

import zmq
from zmq.auth.base import Authenticator

from qcg.pilotjob.wire.sockets import SocketReader, receive_all


class LoopAuthenticator(Authenticator):
    """Answers all connections that wait in one turn of the loop. The authenticator of pyzmq for asyncio needs several
    turns for each, which take long in a busy manager."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context)
        self._loop = loop
        self._reader: SocketReader | None = None

    def start(self) -> None:
        super().start()
        self._reader = SocketReader(self._loop, self.zap_socket, self._receive)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        super().stop()

    def _receive(self) -> None:
        for frames in receive_all(self.zap_socket):
            # It is a coroutine for callbacks that are awaited. Ours are not, so it ends with its first step.
            answering = self.handle_zap_message(frames)
            try:
                answering.send(None)
            except StopIteration:
                continue
            answering.close()
            raise AssertionError("the check of a key did not end at once")
