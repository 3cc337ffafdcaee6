from __future__ import annotations

from qcg.pilotjob.description.requests import ResourcesInfo
from qcg.pilotjob.interfaces.answers import Answer, ok
from qcg.pilotjob.interfaces.pilot import Pilot


async def resources_info(pilot: Pilot, request: ResourcesInfo) -> Answer:
    return ok(resources(pilot))


def resources(pilot: Pilot) -> dict[str, int]:
    pool = pilot.engine.state.pool
    used = sum(run.grant.ncores for run in pilot.engine.state.runs.values()) + pilot.system_cores
    total = pool.total_cores + pilot.system_cores
    return {"total_nodes": len(pool.nodes), "total_cores": total, "used_cores": used, "free_cores": total - used}
