"""What can happen. `Core.handle(event, now)` is the only way in."""

from __future__ import annotations

import math
from typing import Union

from msgspec import Struct

from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Ended, Running, Started


class Submit(Struct, frozen=True, gc=False):
    jobs: list[JobDescription]


class Cancel(Struct, frozen=True, gc=False):
    """Names of jobs or of single iterations, `job:3`."""

    names: list[str]


class Remove(Struct, frozen=True, gc=False):
    names: list[str]


class AttemptStarted(Struct, frozen=True, gc=False):
    record: Started


class AttemptEnded(Struct, frozen=True, gc=False):
    record: Ended


class AttemptSwept(Struct, frozen=True, gc=False):
    """Nothing is left on this node of a run that was started on another one."""

    attempt_id: str
    node: str


class AgentReported(Struct, frozen=True, gc=False):
    """An agent has (re)connected and told all it has under way on its nodes, after all its records were handled."""

    nodes: list[str]
    live: list[Running]


class AgentUnreachable(Struct, frozen=True, gc=False):
    """An agent cannot be reached for the moment: its nodes get no work, and what runs there runs on."""

    nodes: list[str]


class Withdraw(Struct, frozen=True, gc=False):
    """Jobs of a submission that could not be stored were never there. Sent before anything of them was scheduled."""

    names: list[str]


class NodesLost(Struct, frozen=True, gc=False):
    """An agent is gone for good: what ran on its nodes will never tell how it ended."""

    nodes: list[str]
    message: str


class Deadline(Struct, frozen=True, gc=False):
    """When the time of this manager is over, as far as is known: nothing is started from then on, and before it only
    what ends in time, where jobs tell how long they take."""

    at: float | None


class Warned(Struct, frozen=True, gc=False):
    """All runs have got a signal that says that the time is almost over: who fails after it has not failed."""


class ShutDown(Struct, frozen=True, gc=False):
    """This manager ends: nothing is started any more, and jobs that are not final are treated as `disposition` says."""

    disposition: Disposition
    message: str


class Schedule(Struct, frozen=True, gc=False):
    """Give free resources to waiting jobs. Sent once after a burst of other events."""

    most: float = math.inf
    """Jobs to start now, and to say when there are more."""


Event = Union[
    Submit,
    Withdraw,
    Cancel,
    Remove,
    AttemptStarted,
    AttemptEnded,
    AttemptSwept,
    AgentReported,
    AgentUnreachable,
    NodesLost,
    Deadline,
    Warned,
    ShutDown,
    Schedule,
]
