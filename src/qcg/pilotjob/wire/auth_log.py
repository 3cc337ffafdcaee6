"""A log of connections that failed authentication, with at most one line a second."""

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


class AuthenticationLog:
    """Counts failed handshakes from the events of socket monitors.

    A connection begins with ACCEPTED, and its handshake succeeds or fails. A peer that speaks another protocol has no
    handshake: its connection just ends. The events of a handshake do not say which connection they are about, so such
    connections are found by counting.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._undecided = 0
        """Connections whose handshake has neither succeeded nor failed, including ended ones without a handshake."""
        self._ended = 0
        """Ends of connections that may have had no handshake."""
        self._failing = False
        """The last event was a failed handshake; the end of its connection comes next."""
        self._refused: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, kind: int, value: int) -> bool:
        """Count an event. Returns whether it is the end of a connection of a peer with keys."""
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
            self._log_later()
        elif not failing and self._undecided > 0:
            self._ended += 1
            self._log_later()
        else:
            return not failing
        return False

    def close(self) -> None:
        """Log the connections that were not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._log()

    def _log_later(self) -> None:
        if self._timer is None:
            due = self._loop.time() + PAUSE
            self._timer = self._loop.call_at(due, self._log_if_on_time, due)

    def _log_if_on_time(self, due: float) -> None:
        """Log, unless the loop is late: then events of handshakes may wait, whose connections must not be counted."""
        self._timer = None
        if self._loop.time() - due > PAUSE / 2:
            self._log_later()
        else:
            self._log()

    def _log(self) -> None:
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
