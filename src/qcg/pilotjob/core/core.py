"""The entry point of the scheduler: `Core.handle` takes one event and returns a list of effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from qcg.pilotjob.core import attempt_events, cancel, multinode, scheduler, submission
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Cancel,
    Deadline,
    Event,
    HostReported,
    HostUnreachable,
    NodesLost,
    Remove,
    Schedule,
    ShutDown,
    Submit,
    Warned,
    Withdraw,
)
from qcg.pilotjob.core.resources import NodeSpec


class Core:
    """The scheduling state machine. Other packages may read `state`; only the core changes it."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        *,
        rerun_lost: bool = False,
        patience: float = math.inf,
        fallback_node: str = "",
    ) -> None:
        self.state = CoreState(nodes, rerun_lost=rerun_lost, patience=patience, fallback_node=fallback_node)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """React to an event that happened at `now`.

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
    Remove: cancel.remove,
    Deadline: cancel.deadline,
    Warned: cancel.warned,
    ShutDown: cancel.shut_down,
}
