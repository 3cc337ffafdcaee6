"""Keeps count of those who come to the manager's doors and are not let in, and says so in the log, not too often."""

from __future__ import annotations

import asyncio
import errno
import logging

from zmq import Event

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between a refusal and its line in the log, so that a hostile peer cannot fill the disk."""
WATCHED = (
    Event.ACCEPTED
    | Event.DISCONNECTED
    | Event.HANDSHAKE_SUCCEEDED
    | Event.HANDSHAKE_FAILED_NO_DETAIL
    | Event.HANDSHAKE_FAILED_PROTOCOL
    | Event.HANDSHAKE_FAILED_AUTH
)
WITHOUT_KEYS = "without keys"
WRONG_CLIENT_KEY = "with a wrong client key"
WRONG_SERVER_KEY = "with a wrong server key"
BROKEN_OFF = "broken off before any key was shown"
NOT_ZEROMQ = "that did not speak ZeroMQ"
_PROTOCOL = {
    int(Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): WITHOUT_KEYS,
    int(Event.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): WRONG_SERVER_KEY,
}


class Doorman:
    """A connection begins with ACCEPTED, and its handshake succeeds or fails, or it ends without a word: what speaks
    another protocol has no handshake at all. The events of a handshake do not say which connection they are about, so
    the silent ones are found by counting."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._undecided = 0
        """Connections whose handshake neither succeeded nor failed so far; those that ended silently are among them."""
        self._ended = 0
        """Ends of connections that may have been silent."""
        self._failing = False
        """The last event was a failed handshake; the end of its connection comes next."""
        self._refused: dict[str, int] = {}
        self._telling: asyncio.TimerHandle | None = None

    def take(self, kind: int, value: int) -> bool:
        """Whether the connection of a peer with keys has ended."""
        failing, self._failing = self._failing, False
        if kind == Event.ACCEPTED:
            self._undecided += 1
        elif kind == Event.HANDSHAKE_SUCCEEDED:
            self._undecided -= 1
        elif kind != Event.DISCONNECTED:
            self._undecided -= 1
            self._failing = True
            reason = _reason(kind, value)
            self._refused[reason] = self._refused.get(reason, 0) + 1
            self._tell_later()
        elif not failing and self._undecided > 0:
            self._ended += 1
            self._tell_later()
        else:
            return not failing
        return False

    def close(self) -> None:
        """Say what was not said yet."""
        if self._telling is not None:
            self._telling.cancel()
            self._tell()

    def _tell_later(self) -> None:
        if self._telling is None:
            due = self._loop.time() + PAUSE
            self._telling = self._loop.call_at(due, self._tell_if_punctual, due)

    def _tell_if_punctual(self, due: float) -> None:
        """After a long turn of the loop there may be handshakes that wait for it: they are no silent ends."""
        self._telling = None
        if self._loop.time() - due > PAUSE / 2:
            self._tell_later()
        else:
            self._tell()

    def _tell(self) -> None:
        silent = min(self._ended, max(self._undecided, 0))
        self._ended = 0
        self._undecided -= silent
        refused, self._refused = self._refused, {}
        if silent:
            refused[NOT_ZEROMQ] = silent
        if refused:
            kinds = ", ".join(f"{count} {reason}" for reason, count in refused.items())
            log.warning("%d connections were not let in: %s", sum(refused.values()), kinds)


def _reason(kind: int, value: int) -> str:
    if kind == Event.HANDSHAKE_FAILED_AUTH:
        return WRONG_CLIENT_KEY
    if kind == Event.HANDSHAKE_FAILED_PROTOCOL:
        return _PROTOCOL.get(value, NOT_ZEROMQ)
    return WITHOUT_KEYS if value == errno.EPIPE else BROKEN_OFF
