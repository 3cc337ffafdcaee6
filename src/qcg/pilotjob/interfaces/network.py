"""The network interface: the same requests as JSON over ZeroMQ, each answered to the one who asked; and events."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.interfaces.dispatch import answer
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
MOST_UNDER_WAY = 200
"""Requests that are worked on at once; what comes then waits in the network until one of them is answered."""
MOST_BYTES_UNDER_WAY = 4 * MOST_BYTES
MOST_FRAMES = 16
MOST_PARTS = 4 * MOST_BYTES // PART
"""Frames of one request."""
MOST_WAY_BACK = 4096
"""Bytes of the frames before the request, which are sent back with the answer."""
_encode = msgspec.json.Encoder().encode


class NetworkInterface:
    """Open from the start, so that jobs can be told its address; it answers once it serves a pilot."""

    def __init__(self, hub: Hub, options: Options, host: str) -> None:
        """`host`: the address of this machine at which clients reach it."""
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
        self._under_way: dict[asyncio.Future[None], tuple[Frames, int]] = {}
        """The frames that lead back to the client, and the size of its request."""
        self._bytes_under_way = 0

    def serve(self, manager: Manager) -> None:
        self._manager = manager
        self._publisher.follow(manager)
        self._port.resume()
        log.info("network interface at %s, events at %s", self.contact.address, self.contact.publisher)
        if not self.contact.server_key:
            log.warning("--insecure-net: everybody on this host can send requests, and so run commands as this user")

    def _messages(self, messages: list[Frames]) -> None:
        for frames in messages:
            way_back, parts = split_request(frames)
            size = sum(map(len, parts))
            if len(way_back) >= MOST_FRAMES or sum(map(len, way_back)) > MOST_WAY_BACK:
                log.warning("a message of %d frames, %d bytes, was dropped", len(frames), sum(map(len, frames)))
                continue
            if size > MOST_BYTES or len(parts) > MOST_PARTS:
                self._send(way_back, error(_too_large(size, len(parts))))
                continue
            under_way = asyncio.ensure_future(self._answer(way_back, b"".join(parts)))
            self._under_way[under_way] = way_back, size
            self._bytes_under_way += size
            under_way.add_done_callback(self._done)
        if self._is_busy():
            self._port.pause()

    def _is_busy(self) -> bool:
        return len(self._under_way) >= MOST_UNDER_WAY or self._bytes_under_way >= MOST_BYTES_UNDER_WAY

    async def _answer(self, way_back: Frames, body: bytes) -> None:
        assert self._manager is not None
        self._send(way_back, await answer(self._manager, body))

    def _send(self, way_back: Frames, reply: Answer) -> None:
        self._port.send([*way_back, _encode(reply.to_dict())])

    def _done(self, answered: asyncio.Future[None]) -> None:
        way_back, size = self._under_way.pop(answered)
        self._bytes_under_way -= size
        if not answered.cancelled() and (problem := answered.exception()) is not None:
            log.critical("a request could not be answered", exc_info=problem)
            sentence = f"the service has a fault: it could not answer this request ({problem!r}); see service.log"
            self._send(way_back, error(sentence))
        if not self._is_busy():
            self._port.resume()

    async def close(self) -> None:
        """Let those be answered who have asked."""
        self._publisher.close()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=5)


def _too_large(size: int, parts: int) -> str:
    return (
        f"the request has {size} bytes in {parts} frames; {MOST_BYTES} bytes and {MOST_PARTS} frames are the most:"
        " submit the jobs in several requests"
    )
