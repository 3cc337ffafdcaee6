from __future__ import annotations

from typing import Any

from qcg.pilotjob.description.requests import Hosts
from qcg.pilotjob.executors.base import HostState
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.report.formats import timestamp


async def hosts(manager: Manager, request: Hosts) -> Answer:
    """The states of remote hosts by name."""
    states = manager.engine.executor.host_states()
    return ok({"hosts": {name: state_fields(state) for name, state in states.items()}})


def state_fields(state: HostState) -> dict[str, Any]:
    """The state of a host as replies have it."""
    fields: dict[str, Any] = {"state": state.state}
    if state.since:
        fields["since"] = timestamp(state.since)
    optional = {"address": state.address, "channel": state.channel, "error": state.error}
    return {**fields, **{key: value for key, value in optional.items() if value}}
