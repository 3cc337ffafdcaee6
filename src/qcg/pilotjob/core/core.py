"""The entry point of the scheduler: `Core.handle` takes one event and returns a list of effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qcg.pilotjob.core import attempt_events, cancel, drain, hold, multinode, rerun, scheduler, set_job, submission
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Cancel,
    Deadline,
    DrainNodes,
    Event,
    Hold,
    HostReported,
    HostUnreachable,
    NodesLost,
    Release,
    Remove,
    Rerun,
    ResumeNodes,
    Schedule,
    SetJobs,
    ShutDown,
    Submit,
    Warned,
    Withdraw,
)
from qcg.pilotjob.core.pool import EMPTY
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.model import RetryPolicy


class Core:
    """The scheduling state machine. Other packages may read `state`; only the core changes it."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        rerun_lost: bool = False,
        retry: RetryPolicy | None = None,
        patience: float = math.inf,
        fallback_node: str = "",
        counters: Mapping[str, int] = EMPTY,
        drain_after: int = 0,
        stop_after: int = 0,
    ) -> None:
        self.state = CoreState(
            nodes,
            rerun_lost=rerun_lost,
            retry=retry,
            patience=patience,
            fallback_node=fallback_node,
            counters=counters,
            drain_after=drain_after,
            stop_after=stop_after,
        )

    def handle(self, event: Event, now: float) -> list[Effect]:
        """React to an event. `now`: the time by the manager's clock; records of hosts have their own times.

        Raises `SubmissionRejected`, and changes nothing, when a submission is not valid.
        """
        state = self.state
        state.now = now
        _REACTIONS[type(event)](state, event)
        effects, state.effects = state.effects, []
        return effects


_REACTIONS: dict[type[Event], Callable[[CoreState, Any], None]] = {
    Submit: submission.submit,
    Withdraw: cancel.withdraw,
    Schedule: scheduler.schedule,
    AttemptStarted: attempt_events.attempt_started,
    AttemptEnded: attempt_events.attempt_ended,
    AttemptSwept: multinode.attempt_swept,
    HostReported: attempt_events.host_reported,
    HostUnreachable: attempt_events.host_unreachable,
    NodesLost: attempt_events.nodes_lost,
    Cancel: cancel.cancel,
    Hold: hold.hold,
    Release: hold.release,
    SetJobs: set_job.set_jobs,
    Remove: cancel.remove,
    Rerun: rerun.rerun,
    Deadline: cancel.deadline,
    Warned: cancel.warned,
    ShutDown: cancel.shut_down,
    DrainNodes: drain.drain_nodes,
    ResumeNodes: drain.resume_nodes,
}
