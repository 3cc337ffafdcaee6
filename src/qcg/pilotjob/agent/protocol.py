"""The messages between a manager and its agents: msgpack over ZeroMQ, one batch a message.

An agent connects (DEALER) to the manager (ROUTER), so that a new manager finds old agents by writing a new contact
file and an agent needs no open port. The messages of a connection:

    agent   -> Hello                    identity of the agent; sent on connecting, and in answer to Identify
    manager -> Welcome(ack, seen)       numbers of the last record in the journal, and of the last one received
    agent   -> Report(records, live)    all records after `ack`, and all running jobs: the manager reconciles
    then    manager -> Start, Kill, Retract, Signal, Sweep, Ack, Beat, Exit     agent -> News, Leaving, Swept, Beat, Bye

Records are numbered 1, 2, 3 … over the agent's whole life and kept in its ledger, so a restarted agent continues
counting. They are kept until acknowledged; the manager acknowledges once its journal has them.

A number is never used for two records, because the manager takes a record with a number up to `seen` for a repetition.
So an agent sends no record before it is in the ledger, even when the disk is full: until then an ended job is reported
as `live`. When a crash of the machine loses lines of the ledger all the same, the next agent continues above `seen`.
Records that it made before that Welcome are numbered again, first in the ledger and then in messages.

An agent sends heartbeats with the time of its clock, and the manager answers each at once with the same time. So the
agent knows that the manager heard from it at this time or later. `fence` seconds after it, the manager may soon take
the node for lost and start its jobs on other nodes.
"""

from __future__ import annotations

from typing import Union

import msgspec
from msgspec import Struct

from qcg.pilotjob.host.records import Ended, EndReason, Launch, Running, Started

PROTOCOL = 4
"""Version of these messages, to be raised with every change that an older peer could not read."""


class StartedRecord(Struct, tag="s", array_like=True):
    number: int
    body: Started


class EndedRecord(Struct, tag="e", array_like=True):
    number: int
    body: Ended


WireRecord = Union[StartedRecord, EndedRecord]


def record(number: int, body: Started | Ended) -> WireRecord:
    return StartedRecord(number, body) if isinstance(body, Started) else EndedRecord(number, body)


class Hello(Struct, tag="hello"):
    """The identity and the resources of an agent."""

    agent: str
    host: str
    pid: int
    cores: list[int]
    """The CPUs that this agent may use, in the order of sockets, cores and threads."""
    version: str
    machine: list[list[int]] = []
    """All CPUs of its machine, grouped by core, in the same order."""
    gpus: list[str] = []
    """GPU ids given by the batch system; empty without."""
    protocol: int = 1
    """Version of the messages of this agent; version 1 had no such field."""


class Report(Struct, tag="report"):
    """The state of an agent, in answer to Welcome."""

    records: list[WireRecord]
    live: list[Running]


class News(Struct, tag="news"):
    """New records of starts and ends."""

    records: list[WireRecord]


class Leaving(Struct, tag="leaving"):
    """An attempt on several nodes is being ended on its first node; the manager has to sweep the others."""

    id: str
    nodes: list[str]
    """The other nodes of the attempt."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""


class Swept(Struct, tag="swept"):
    """No process of these attempts is left on this node."""

    ids: list[str]


class Beat(Struct, tag="beat"):
    """A heartbeat, in both directions."""

    at: float = 0.0
    """Time by the clock of the agent, repeated in the answer; 0 in a beat that is no answer."""


class Bye(Struct, tag="bye"):
    """The agent has ended all its jobs and exits."""


class Identify(Struct, tag="identify"):
    """The manager does not know this connection and asks for Hello."""


class Welcome(Struct, tag="welcome"):
    """The answer to Hello."""

    ack: int
    """Number of the last record in the journal."""
    seen: int
    """Number of the last record received."""
    instance: str = ""
    """Id of the run: the first part of the markers of all its attempts."""
    fence: float = 0.0
    """Seconds after which a node that is cut off kills its jobs; 0: never."""
    given_up: bool = False
    """The manager took this node for lost, and may have started its jobs on other nodes."""


class Start(Struct, tag="start"):
    launches: list[Launch]


class Kill(Struct, tag="kill"):
    ids: list[str]
    reason: str = EndReason.CANCEL
    """The reason in the records of jobs that are ended by this message."""
    message: str = ""


class Retract(Struct, tag="recall"):
    """Drop the jobs among these that still wait in their lane. Their records end with the reason `closed`."""

    ids: list[str]


class Signal(Struct, tag="signal"):
    """Send a signal to all processes of these jobs that catch it."""

    ids: list[str]
    number: int


class Sweep(Struct, tag="sweep"):
    """End the processes on this node of attempts that other agents started, found by their markers. The agent answers
    with Swept, over the same connection, when none is left."""

    ids: list[str]
    instance: str
    """Id of the run: the first part of the markers."""
    grace: float = 0.0
    """Seconds between SIGTERM and SIGKILL."""


class Ack(Struct, tag="ack"):
    """All records up to this number are in the journal."""

    number: int


class Exit(Struct, tag="exit"):
    """End all jobs with SIGTERM, and SIGKILL after `grace` seconds; then send Bye and exit."""

    grace: float
    reason: str = EndReason.CANCEL
    """As in `Kill`."""


FromAgent = Union[Hello, Report, News, Leaving, Swept, Beat, Bye]
FromManager = Union[Identify, Welcome, Start, Kill, Retract, Signal, Sweep, Ack, Beat, Exit]

encode = msgspec.msgpack.Encoder().encode
decode_from_agent = msgspec.msgpack.Decoder(FromAgent).decode
decode_from_manager = msgspec.msgpack.Decoder(FromManager).decode
