"""The core's door: one event in, a list of effects out. No clock, no files, no sockets behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from qcg.pilotjob.core import attempt_events, cancel, multinode, scheduler, submission
from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Effect
from qcg.pilotjob.core.events import (
    AgentReported,
    AgentUnreachable,
    AttemptEnded,
    AttemptStarted,
    AttemptSwept,
    Cancel,
    Deadline,
    Event,
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
    """Decides everything about jobs. What it knows is in `state`, for all to read and for nobody else to change."""

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
        """React to what happened at `now`. Raises `Refused`, and changes nothing, when a submission cannot be taken."""
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
    AgentReported: attempt_events.agent_reported,
    AgentUnreachable: attempt_events.agent_silent,
    NodesLost: attempt_events.nodes_lost,
    Cancel: cancel.cancel,
    Remove: cancel.remove,
    Deadline: cancel.deadline,
    Warned: cancel.warned,
    ShutDown: cancel.shut_down,
}
