from __future__ import annotations

from qcg.pilotjob.description.errors import quoted, suggestion
from qcg.pilotjob.description.requests import ConnectHost
from qcg.pilotjob.interfaces.replies import Answer, error, ok
from qcg.pilotjob.manager.manager import Manager


async def connect_host(manager: Manager, request: ConnectHost) -> Answer:
    """Try to reach a remote host again now. The answer does not wait for the result."""
    known = tuple(manager.engine.executor.host_states())
    if not manager.engine.executor.reconnect(request.host):
        return error(unknown_host(request.host, known))
    return ok(message=f"{request.host} is tried again now")


def unknown_host(name: str, known: tuple[str, ...]) -> str:
    """The sentence about a host that this run does not have."""
    if not known:
        return f"there is no remote host {quoted(name)}: this run has none"
    return f"this run has no remote host {quoted(name)}{suggestion(name, known)}"
