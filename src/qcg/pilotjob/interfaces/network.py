"""The network interface: requests as JSON over ZeroMQ, their answers, and published events."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.interfaces.dispatch import answer, answer_at_once
from qcg.pilotjob.interfaces.publisher import Publisher
from qcg.pilotjob.interfaces.replies import Answer, error
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.wire.contact import MOST_BYTES, ClientsContact
from qcg.pilotjob.wire.hub import BindError, Frames, Hub, Limits
from qcg.pilotjob.wire.keys import make_keys
from qcg.pilotjob.wire.parts import PART, split_request

log = logging.getLogger(__name__)

DOMAIN = "clients"
LIMITS = Limits(open_frame=MOST_BYTES, explained=True, unsent=1000, unread=100, turn=50, turn_bytes=MOST_BYTES)
MOST_IN_PROGRESS = 200
"""The most requests that are handled at once; further ones wait in the network."""
MOST_BYTES_IN_PROGRESS = 4 * MOST_BYTES
MOST_FRAMES = 16
MOST_PARTS = 4 * MOST_BYTES // PART
"""The most frames of one request."""
MOST_ENVELOPE_BYTES = 4096
"""The most bytes of the routing envelope, which is sent back with the answer."""
SMALL = 1000
"""Bytes of a request that may be answered in the turn in which it arrives."""
ANSWER_TIMEOUT = 5.0
"""Seconds to answer the last requests when the interface is closed."""
_encode = msgspec.json.Encoder().encode


class NetworkInterface:
    """Open from the start, so that jobs know its address; it answers requests after `serve`."""

    def __init__(self, hub: Hub, options: Options, host: str) -> None:
        """`host`: the address of this machine for clients."""
        keys = None if options.insecure_net else make_keys()
        try:
            self._port = hub.router(DOMAIN, keys, f"tcp://{host}:{options.net_port}", self._messages, LIMITS)
            self._publisher = Publisher(hub, keys, f"tcp://{host}:{options.net_pub_port}")
        except BindError as problem:
            raise UsageError(
                f"the network interface cannot be opened: {problem}; give another port, or none for any free one"
            ) from None
        self._port.pause()
        self.contact = ClientsContact(
            address=self._port.address,
            publisher=self._publisher.address,
            server_key=keys.server_public if keys else "",
            client_public=keys.client_public if keys else "",
            client_secret=keys.client_secret if keys else "",
        )
        self._manager: Manager | None = None
        self._in_progress: dict[asyncio.Future[None], tuple[Frames, int]] = {}
        """Routing envelope and size of each request that is being handled."""
        self._bytes_in_progress = 0

    def serve(self, manager: Manager) -> None:
        self._manager = manager
        self._publisher.follow(manager)
        self._port.resume()
        log.info("network interface at %s, events at %s", self.contact.address, self.contact.publisher)
        if not self.contact.server_key:
            log.warning("--insecure-net: everybody on this host can send requests, and so run commands as this user")

    def _messages(self, messages: list[Frames]) -> None:
        for frames in messages:
            envelope, parts = split_request(frames)
            size = sum(map(len, parts))
            if len(envelope) >= MOST_FRAMES or sum(map(len, envelope)) > MOST_ENVELOPE_BYTES:
                log.warning("a message of %d frames, %d bytes, was dropped", len(frames), sum(map(len, frames)))
                continue
            if size > MOST_BYTES or len(parts) > MOST_PARTS:
                self._send(envelope, error(_too_large(size, len(parts))))
                continue
            body = b"".join(parts)
            if size <= SMALL and self._answer_at_once(envelope, body):
                continue
            task = asyncio.ensure_future(self._answer(envelope, body))
            self._in_progress[task] = envelope, size
            self._bytes_in_progress += size
            task.add_done_callback(self._done)
        if self._is_busy():
            self._port.pause()

    def _is_busy(self) -> bool:
        return len(self._in_progress) >= MOST_IN_PROGRESS or self._bytes_in_progress >= MOST_BYTES_IN_PROGRESS

    def _answer_at_once(self, envelope: Frames, body: bytes) -> bool:
        assert self._manager is not None
        reply = answer_at_once(self._manager, body)
        if reply is not None:
            self._send(envelope, reply)
        return reply is not None

    async def _answer(self, envelope: Frames, body: bytes) -> None:
        assert self._manager is not None
        self._send(envelope, await answer(self._manager, body))

    def _send(self, envelope: Frames, reply: Answer) -> None:
        self._port.send([*envelope, _encode(reply.to_dict())])

    def _done(self, answered: asyncio.Future[None]) -> None:
        envelope, size = self._in_progress.pop(answered)
        self._bytes_in_progress -= size
        if not answered.cancelled() and (problem := answered.exception()) is not None:
            log.critical("a request could not be answered", exc_info=problem)
            sentence = f"the manager has a defect: it could not answer this request ({problem!r}); see service.log"
            self._send(envelope, error(sentence))
        if not self._is_busy():
            self._port.resume()

    async def close(self) -> None:
        """Answer the requests that have arrived, and close both ports."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=ANSWER_TIMEOUT)
        self._publisher.close()
        self._port.close()


def _too_large(size: int, parts: int) -> str:
    return (
        f"the request has {size} bytes in {parts} frames; {MOST_BYTES} bytes and {MOST_PARTS} frames are the most:"
        " submit the jobs in several requests"
    )
