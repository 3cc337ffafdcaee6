"""The messages between a manager and its agents: msgpack over ZeroMQ, one batch a message.

An agent connects (DEALER) to the manager (ROUTER), so that a new manager finds old agents by writing a new contact
file and an agent needs no open port. The walk of a connection:

    agent   -> Hello                    who I am; sent on connecting, and whenever the manager says Identify
    manager -> Welcome(ack, seen)       the last record of yours that I have on disk, and the last that I have seen
    agent   -> Report(records, live)    all records after `ack`, and all jobs under way: the manager reconciles
    then    manager -> Start, Kill, Recall, Signal, Sweep, Ack, Beat, Exit      agent -> News, Leaving, Swept, Beat, Bye

Records are numbered 1, 2, 3 … over the agent's whole life and kept in its ledger, so a restarted agent goes on
counting. They are kept until acknowledged; the manager acknowledges once its journal has them.

A number never means two things, because the manager takes a record that is not above the last one it has seen for a
repetition. So an agent sends no record before its ledger has it, however full the disk is: until then a job that has
ended is told as `live`. When a crash of its machine takes lines from the ledger all the same, the next agent counts on
above `seen`, and what it has recorded before that Welcome moves up as well, in the ledger before on the wire.

An agent beats, and the manager answers each beat at once with the same time in it. So an agent knows by its own clock a
moment at which its manager has heard of it, or later: `fence` seconds after that moment the manager may soon take the
node for lost and run its jobs elsewhere.
"""

from __future__ import annotations

from typing import Union

import msgspec
from msgspec import Struct

from qcg.pilotjob.host.records import Ended, EndReason, Launch, Running, Started

PROTOCOL = 2
"""Version of these messages, to be raised with every change that the other side could not read."""


class StartedRecord(Struct, tag="s", array_like=True):
    number: int
    body: Started


class EndedRecord(Struct, tag="e", array_like=True):
    number: int
    body: Ended


Record = Union[StartedRecord, EndedRecord]


def record(number: int, body: Started | Ended) -> Record:
    return StartedRecord(number, body) if isinstance(body, Started) else EndedRecord(number, body)


class Hello(Struct, tag="hello"):
    agent: str
    host: str
    pid: int
    cores: list[int]
    """The CPUs that this agent may use, in the order of sockets, cores and threads."""
    version: str
    machine: list[list[int]] = []
    """All CPUs of its machine, those of each core together, in the same order."""
    gpus: list[str] = []
    """As the batch system has told it to call them, if it has."""
    protocol: int = 1
    """Version of the messages that this agent reads and writes; the first one was not sent."""


class Report(Struct, tag="report"):
    records: list[Record]
    live: list[Running]


class News(Struct, tag="news"):
    records: list[Record]


class Leaving(Struct, tag="leaving"):
    """A run on several nodes is being ended on its first one: what it has on the others is to be ended as well."""

    id: str
    nodes: list[str]
    """The others."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""


class Swept(Struct, tag="swept"):
    """Nothing of these runs is left here."""

    ids: list[str]


class Beat(Struct, tag="beat"):
    """Nothing to say, and alive. Both directions."""

    at: float = 0.0
    """By the agent's clock; 0 when it answers no beat."""


class Bye(Struct, tag="bye"):
    """The agent has ended all its jobs and exits."""


class Identify(Struct, tag="identify"):
    """The manager does not know this connection: say Hello."""


class Welcome(Struct, tag="welcome"):
    ack: int
    seen: int
    instance: str = ""
    """Of the pilot: the first half of the marks of all its jobs."""
    fence: float = 0.0
    """Seconds after which a node that is cut off from its manager ends its jobs; 0: it never does."""
    given_up: bool = False
    """The manager took this node for lost: whatever still runs here may run somewhere else by now."""


class Start(Struct, tag="start"):
    launches: list[Launch]


class Kill(Struct, tag="kill"):
    ids: list[str]
    reason: str = EndReason.CANCEL
    """What the records of their ends will say, if this is what ends them."""
    message: str = ""


class Retract(Struct, tag="recall"):
    """Give back those of these jobs that still wait for others in their lane; their records end with `closed`."""

    ids: list[str]


class Signal(Struct, tag="signal"):
    """Give this signal to all processes of these jobs that catch it."""

    ids: list[str]
    number: int


class Sweep(Struct, tag="sweep"):
    """End what other agents' runs have on this machine: all processes with the marks of these runs. Answered with
    `Swept`, over the same line, when there are none."""

    ids: list[str]
    instance: str
    """Of the pilot: the first half of the marks."""
    grace: float = 0.0
    """Seconds between SIGTERM and SIGKILL."""


class Ack(Struct, tag="ack"):
    number: int


class Exit(Struct, tag="exit"):
    """End everything and go: SIGTERM to all jobs, SIGKILL after `grace` seconds, then Bye."""

    grace: float
    reason: str = EndReason.CANCEL
    """As in `Kill`."""


FromAgent = Union[Hello, Report, News, Leaving, Swept, Beat, Bye]
FromManager = Union[Identify, Welcome, Start, Kill, Retract, Signal, Sweep, Ack, Beat, Exit]

encode = msgspec.msgpack.Encoder().encode
decode_from_agent = msgspec.msgpack.Decoder(FromAgent).decode
decode_from_manager = msgspec.msgpack.Decoder(FromManager).decode
