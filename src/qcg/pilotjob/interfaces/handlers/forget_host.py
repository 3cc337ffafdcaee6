from __future__ import annotations

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.events import NodesLost
from qcg.pilotjob.description.requests import ForgetHost
from qcg.pilotjob.executors.ssh.marker import forgotten_message
from qcg.pilotjob.interfaces.handlers.connect_host import unknown_host
from qcg.pilotjob.interfaces.replies import Answer, error, ok
from qcg.pilotjob.manager.commits import Counted
from qcg.pilotjob.manager.manager import Manager


async def forget_host(manager: Manager, request: ForgetHost, counted: Counted | None) -> Answer:
    """Give up a remote host by the decision of a user. The answer is sent when that survives a crash of the manager."""
    engine, name = manager.engine, request.host
    states = engine.executor.host_states()
    if name not in states:
        return error(unknown_host(name, tuple(states)))
    if states[name].state != "unreachable":
        return error(f"{name} is {states[name].state}, and only an unreachable host can be given up; cancel its jobs")
    lost = len(engine.state.attempts_of_nodes([name]))
    _, remark = engine.carry_out(NodesLost([name], forgotten_message(name)), counted)
    engine.executor.forget(name)
    engine.host_away(name, [name], f"it was given up; `qcg-pm hosts connect {name}` tries it again")
    engine.notice(f"{name} was given up by its user, with {pluralize(lost, 'job')}")
    return ok({"lost": lost}, remark or None)
