"""Heartbeat intervals and timeouts of connections that more than one package knows."""

from __future__ import annotations

AGENT_HEARTBEAT = 2.0
"""Seconds between two heartbeats of an agent."""
AGENT_SILENCE = 3 * AGENT_HEARTBEAT
"""Seconds without an answer after which an agent makes a new connection."""
CONTACT_INTERVAL = 2.0
"""Seconds between two times at which a manager touches its contact file."""

SOCKET_HEARTBEAT = 5000
"""Milliseconds between two heartbeats of ZeroMQ on a listening socket."""
SOCKET_SILENCE = 15000
"""Milliseconds without an answer to them after which ZeroMQ closes a connection."""
HANDSHAKE_TIMEOUT = 5000
"""Milliseconds after which a peer that has not shown its keys is disconnected."""
