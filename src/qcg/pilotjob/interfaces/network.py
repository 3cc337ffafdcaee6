"""The network interface: the same requests as JSON over ZeroMQ, each answered to the one who asked; and events."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from qcg.pilotjob.interfaces.answering import answer
from qcg.pilotjob.interfaces.answers import error
from qcg.pilotjob.interfaces.pilot import Pilot
from qcg.pilotjob.interfaces.publisher import Publisher
from qcg.pilotjob.options import Options, UsageError
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.hub import BindError, Frames, Hub
from qcg.pilotjob.wire.keys import make_keys

log = logging.getLogger(__name__)

DOMAIN = "clients"
HOST = "tcp://127.0.0.1"
MOST_BYTES = 1 << 30
"""Of one request."""
_encode = msgspec.json.Encoder().encode


class NetworkInterface:
    """Open from the start, so that jobs can be told its address; it answers once it serves a pilot."""

    def __init__(self, hub: Hub, options: Options) -> None:
        keys = None if options.insecure_net else make_keys()
        if keys is None:
            log.warning("--insecure-net: everybody on this host can send requests, and so run commands as this user")
        try:
            self._port = hub.router(DOMAIN, keys, f"{HOST}:{options.net_port}", self._messages)
            self._publisher = Publisher(hub, keys, f"{HOST}:{options.net_pub_port}")
        except BindError as problem:
            raise UsageError(f"the network interface cannot be opened: {problem}") from None
        self.contact = ClientsContact(
            address=self._port.address,
            publisher=self._publisher.address,
            server_key=keys.server_public if keys else "",
            client_public=keys.client_public if keys else "",
            client_secret=keys.client_secret if keys else "",
        )
        self._pilot: Pilot | None = None
        self._under_way: set[asyncio.Future[None]] = set()

    def serve(self, pilot: Pilot) -> None:
        self._pilot = pilot
        pilot.interfaces.append("network")
        pilot.publisher = self.contact.publisher
        self._publisher.follow(pilot)
        log.info("network interface at %s, events at %s", self.contact.address, self.contact.publisher)

    def _messages(self, messages: list[Frames]) -> None:
        for frames in messages:
            under_way = asyncio.ensure_future(self._answer(frames))
            self._under_way.add(under_way)
            under_way.add_done_callback(self._under_way.discard)

    async def _answer(self, frames: Frames) -> None:
        """The last frame is the request; what stands before it leads back to the client."""
        *way_back, body = frames
        assert self._pilot is not None
        if len(body) > MOST_BYTES:
            reply = error(f"a request of {len(body)} bytes is too large; the most is {MOST_BYTES}")
        else:
            reply = await answer(self._pilot, body)
        self._port.send([*way_back, _encode(reply.to_dict())])

    async def close(self) -> None:
        """Let those be answered who have asked."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=5)
