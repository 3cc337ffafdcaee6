"""The output of `--json`: snake_case keys, numbers as numbers, times as epoch seconds, durations in seconds.

The keys of replies (`jobName`, `exitCode`, `JobStats` …) are kept beside them, for programs that read those.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from qcg.pilotjob.api.jobinfo import JobInfo, seconds_of

NEW_NAMES = {
    "jobName": "name",
    "status": "state",
    "messages": "message",
    "inQueue": "in_queue",
    "childs": "children",
    "exitCode": "exit_code",
    "lastLines": "last_lines",
    "lastLinesOf": "last_lines_of",
    "wallTime": "wall_time",
    "timeLeft": "time_left",
    "rowProblem": "row_problem",
    "heldSince": "held_since",
    "higherPriority": "higher_priority",
    "streamName": "stream_name",
}
"""New keys by the keys of replies."""
_NUMBERS = frozenset(
    (
        "exit_code",
        "pid",
        "max_memory",
        "requested_memory",
        "minor_faults",
        "major_faults",
        "read_bytes",
        "written_bytes",
    )
)
"""Keys of `runtime` whose values are strings in replies."""
_COUNTS = {
    "total": "Total",
    "waiting": "InSchedule",
    "running": "Executing",
    "succeeded": "Finished",
    "failed": "Failed",
    "canceled": "Canceled",
    "omitted": "Omitted",
}


def renamed(data: Any) -> Any:
    """Add the new name of each key beside the old one, at any depth."""
    if isinstance(data, list):
        return [renamed(entry) for entry in data]
    if not isinstance(data, dict):
        return data
    values = {key: renamed(value) for key, value in data.items()}
    new = {NEW_NAMES[key]: value for key, value in values.items() if key in NEW_NAMES}
    return {**new, **values}


def listed_jobs(jobs: dict[str, Any]) -> dict[str, Any]:
    """The output of `jobs`."""
    return {"length": len(jobs), "jobs": {name: renamed(job) for name, job in jobs.items()}}


def job_information(data: dict[str, Any]) -> dict[str, Any]:
    """One job in the output of `info`."""
    parsed = JobInfo.from_job(data)
    record: dict[str, Any] = renamed({**data, "childs": [_child(child) for child in data.get("childs", [])]})
    if "childs" not in data:
        del record["childs"], record["children"]
    if "runtime" in data:
        record["runtime"] = _runtime(data["runtime"], parsed.time)
    record["transitions"] = [{"state": state, "time": moment.timestamp()} for moment, state in parsed.history]
    return record


def _child(child: dict[str, Any]) -> dict[str, Any]:
    return {**child, "runtime": _runtime(child["runtime"], JobInfo.from_child("", child).time)}


def _runtime(runtime: dict[str, str], time: timedelta | None) -> dict[str, Any]:
    record: dict[str, Any] = {key: int(value) if key in _NUMBERS else value for key, value in runtime.items()}
    if "cpu_efficiency" in runtime:
        record["cpu_efficiency"] = float(runtime["cpu_efficiency"])
    for key in ("cpu", "user", "system"):
        if f"{key}_time" in runtime:
            record[f"{key}_seconds"] = seconds_of(runtime[f"{key}_time"])
    return record if time is None else {**record, "run_seconds": time.total_seconds()}


def system_status(status: dict[str, Any]) -> dict[str, Any]:
    """The output of `status`; without a manager, only jobs and iterations are known."""
    record: dict[str, Any] = {"manager": None, "resources": None}
    if "System" in status:
        record["manager"] = _manager(status["System"])
        have = status["Resources"]
        record["resources"] = {
            "total_nodes": have["TotalNodes"],
            "total_cores": have["TotalCores"],
            "used_cores": have["UsedCores"],
            "free_cores": have["FreeCores"],
            **({"away": have["Away"]} if "Away" in have else {}),
            **({"named": have["Named"]} if "Named" in have else {}),
            **({"gpus": have["Gpus"]} if "Gpus" in have else {}),
            **({"drained": have["Drained"]} if "Drained" in have else {}),
            **({"hosts": have["Hosts"]} if "Hosts" in have else {}),
        }
    record["jobs"] = counts(status["JobStats"], "Jobs")
    record["iterations"] = counts(status["IterationStats"], "Iterations")
    return {**record, **status}


def counts(stats: dict[str, int], what: str) -> dict[str, int]:
    """Counts of jobs or iterations by state. Replies count omitted jobs as failed, and cancelled ones as finished."""
    found = {name: stats[f"{old}{what}"] for name, old in _COUNTS.items()}
    found["succeeded"] -= found["canceled"]
    found["failed"] -= found["omitted"]
    return found


def _manager(system: dict[str, Any]) -> dict[str, Any]:
    started, generated = (datetime.fromisoformat(system[key]) for key in ("Started", "Generated"))
    return {
        "id": system["InstanceId"],
        "address": system["Zmqaddress"],
        "publisher": system["StatusPublisher"],
        "interfaces": [name for name in system["Ifaces"].split(";") if name],
        "host": system["Host"],
        "account": system["Account"],
        "wd": system["Wd"],
        "started": started.timestamp(),
        "uptime": (generated - started).total_seconds(),
        "python": system["Python"],
        "python_version": system["PythonVersion"],
        "platform": system["Platform"],
    }
