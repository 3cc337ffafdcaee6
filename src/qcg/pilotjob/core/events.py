"""Events: everything that `Core.handle` reacts to."""

from __future__ import annotations

import math
from typing import Union

from msgspec import Struct

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.shutdown import Disposition
from qcg.pilotjob.description.changes import JobChange
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.host.records import Ended, Running, Started


class Submit(Struct, frozen=True, gc=False):
    """Add jobs: all of them, or none if one is not valid."""

    jobs: list[JobDescription]


class Cancel(Struct, frozen=True, gc=False):
    """Cancel jobs that are not final."""

    names: list[str]
    """Jobs, or single iterations such as `job:3`."""


class Hold(Struct, frozen=True, gc=False):
    """Do not start waiting jobs until they are released."""

    names: list[str]
    """Jobs, or single iterations such as `job:3`."""


class Release(Struct, frozen=True, gc=False):
    """Let held jobs be started."""

    names: list[str] | None
    """Jobs, or single iterations; None for all held jobs."""


class SetJobs(Struct, frozen=True, gc=False):
    """Change the resource request, the wall time or the priority of waiting jobs."""

    names: list[str]
    change: JobChange


class Remove(Struct, frozen=True, gc=False):
    """Remove final jobs from the registry."""

    names: list[str]
    refused: bool = False
    """Whether their submission was refused, so that their failures do not count."""


class RerunCandidate(Struct, frozen=True, gc=False):
    """A job of which some part has ended without success."""

    description: JobDescription
    attempts: dict[int, tuple[int, int]] = {}
    """By position, the last attempt number, and the number of attempts that were started."""
    replaced: bool = False
    """Whether the description is a new one."""
    changed_rows: frozenset[int] = frozenset()
    """Positions without success whose rows differ in the new description."""
    held_since: float = 0.0
    """When the job was held, if it was held as a whole until it was omitted; otherwise 0."""


class Rerun(Struct, frozen=True, gc=False):
    """Run jobs and iterations again that have ended without success, and their omitted dependents."""

    names: list[str]
    """Jobs, or single iterations such as `job:3`; empty for all."""
    states: list[State]
    """FAILED, CANCELED and OMITTED, or some of them; empty for all of them."""
    jobs: dict[str, RerunCandidate]
    """The jobs with these names or states, and the jobs with omitted parts that wait for them, at any depth."""


class AttemptStarted(Struct, frozen=True, gc=False):
    """A host has started an attempt."""

    record: Started


class AttemptEnded(Struct, frozen=True, gc=False):
    """An attempt has ended on the node that started it."""

    record: Ended


class AttemptSwept(Struct, frozen=True, gc=False):
    """No process is left on this node of an attempt that was started on another node."""

    attempt_id: str
    node: str


class HostReported(Struct, frozen=True, gc=False):
    """A host has connected again and listed its live attempts, after all its records were handled."""

    nodes: list[str]
    live: list[Running]


class HostUnreachable(Struct, frozen=True, gc=False):
    """A host cannot be reached for the moment: its nodes get no work, and their attempts run on."""

    nodes: list[str]
    reason: str = ""
    """Why, as a clause for users; empty if it is not known."""


class Withdraw(Struct, frozen=True, gc=False):
    """Take back a submission that could not be stored. Sent before any of its jobs was scheduled."""

    names: list[str]


class NodesLost(Struct, frozen=True, gc=False):
    """A host is gone for good: the ends of the attempts on its nodes will never be known."""

    nodes: list[str]
    message: str


class Deadline(Struct, frozen=True, gc=False):
    """The time of this manager ends at `at`: from then on nothing is started, and before it only jobs whose wall time
    ends in time."""

    at: float | None


class Warned(Struct, frozen=True, gc=False):
    """All attempts got the signal that time is almost over. A job that fails after the signal is queued again, not
    FAILED."""


class ShutDown(Struct, frozen=True, gc=False):
    """This manager ends: nothing more is started, and `disposition` defines the effect on jobs that are not final."""

    disposition: Disposition
    message: str


class DrainNodes(Struct, frozen=True, gc=False):
    """Place no new attempts on these nodes. Attempts that run there continue."""

    nodes: list[str]
    reason: str = ""
    """Why, as a clause for users; empty for the default."""


class ResumeNodes(Struct, frozen=True, gc=False):
    """Use drained nodes again."""

    nodes: list[str]


class Schedule(Struct, frozen=True, gc=False):
    """Give free resources to waiting jobs. Sent once after a batch of other events."""

    most: float = math.inf
    """Maximum number of starts in this pass; `MoreToStart` follows when it is reached."""


Event = Union[
    Submit,
    Withdraw,
    Cancel,
    Hold,
    Release,
    SetJobs,
    Remove,
    Rerun,
    AttemptStarted,
    AttemptEnded,
    AttemptSwept,
    HostReported,
    HostUnreachable,
    NodesLost,
    Deadline,
    Warned,
    ShutDown,
    DrainNodes,
    ResumeNodes,
    Schedule,
]
