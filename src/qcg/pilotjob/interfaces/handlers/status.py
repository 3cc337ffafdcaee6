from __future__ import annotations

import getpass
import os
import platform
import sys
from datetime import datetime
from typing import Any

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.requests import Status
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.interfaces.handlers.resources_info import resources
from qcg.pilotjob.interfaces.replies import Answer, ok
from qcg.pilotjob.interfaces.run_view import RunView
from qcg.pilotjob.manager.manager import Manager


async def status(manager: Manager, request: Status) -> Answer:
    return overview(manager, request)


def overview(manager: Manager, request: Status) -> Answer:
    """Return an overview of the manager, its resources and its jobs, from counters only."""
    state = manager.engine.state
    if request.all_jobs_finished:
        return ok({"AllJobsFinished": not state.unfinished})
    have = resources(manager)
    return ok(
        {
            "System": _system(manager),
            "Resources": {
                "TotalNodes": have["total_nodes"],
                "TotalCores": have["total_cores"],
                "UsedCores": have["used_cores"],
                "FreeCores": have["free_cores"],
                **({"Away": have["away"]} if "away" in have else {}),
                **({"Named": have["named"]} if "named" in have else {}),
                **({"Gpus": have["gpus"]} if "gpus" in have else {}),
                **({"Drained": have["drained"]} if "drained" in have else {}),
                **({"Hosts": have["hosts"]} if "hosts" in have else {}),
            },
            **counts(manager),
        }
    )


def counts(run: RunView) -> dict[str, dict[str, int]]:
    """Numbers of jobs and iterations by state."""
    state = run.state
    return {
        "JobStats": _counts(state.job_counts, "Jobs"),
        "IterationStats": _counts(state.iteration_counts, "Iterations"),
    }


def _system(manager: Manager) -> dict[str, Any]:
    now = datetime.now()
    return {
        "InstanceId": manager.run_id,
        "Started": str(manager.started),
        "Generated": str(now),
        "Uptime": str(now - manager.started),
        "Zmqaddress": manager.engine.site.zmq_address,
        "Ifaces": ";".join(manager.interfaces),
        "StatusPublisher": manager.publisher,
        "Host": host_name(),
        "Account": _account(),
        "Wd": manager.engine.site.root_wd,
        "PythonVersion": platform.python_version(),
        "Python": sys.executable,
        "Platform": sys.platform,
    }


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        return str(os.getuid())


def _counts(counts: list[int], what: str) -> dict[str, int]:
    return {
        f"Total{what}": sum(counts),
        f"InSchedule{what}": counts[State.QUEUED] + counts[State.SCHEDULED],
        f"Failed{what}": counts[State.FAILED] + counts[State.OMITTED],
        f"Finished{what}": counts[State.SUCCEED] + counts[State.CANCELED],
        f"Executing{what}": counts[State.EXECUTING],
        # The smaller parts of the two entries above that combine states.
        f"Canceled{what}": counts[State.CANCELED],
        f"Omitted{what}": counts[State.OMITTED],
    }
