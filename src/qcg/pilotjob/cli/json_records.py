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
    "numCores": "num_cores",
    "numNodes": "num_nodes",
    "nodeCrs": "node_crs",
}
"""New keys by the keys of replies."""
_TIMES = frozenset(("held_since", "since", "until", "at", "started", "ended"))
"""Keys whose values are timestamps in replies: text."""
_OF_USERS = frozenset(("itval", "named", "directives"))
"""Keys whose values have names that users choose."""
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
"""Keys of `runtime` and `attempts` whose values are strings in replies."""
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
    """Add the new name of each key beside the old one, and convert times to seconds, at any depth.

    Under an old name that has a new one, a time stays text.
    """
    return in_seconds(_with_new_names(data))


def _with_new_names(data: Any) -> Any:
    if isinstance(data, list):
        return [_with_new_names(entry) for entry in data]
    if not isinstance(data, dict):
        return data
    values = {key: value if key in _OF_USERS else _with_new_names(value) for key, value in data.items()}
    new = {NEW_NAMES[key]: value for key, value in values.items() if key in NEW_NAMES}
    return {**new, **values}


def in_seconds(data: Any) -> Any:
    """Convert times to seconds, at any depth."""
    if isinstance(data, list):
        return [in_seconds(entry) for entry in data]
    if not isinstance(data, dict):
        return data
    return {key: _value_in_seconds(key, value) for key, value in data.items()}


def _value_in_seconds(key: str, value: Any) -> Any:
    if key in _TIMES and isinstance(value, str):
        return epoch_seconds(value)
    return value if key in _OF_USERS else in_seconds(value)


def epoch_seconds(text: str) -> float:
    """The time of a timestamp in a reply."""
    return datetime.fromisoformat(text).timestamp()


def listed_jobs(jobs: dict[str, Any]) -> dict[str, Any]:
    """The output of `jobs`."""
    return {"length": len(jobs), "jobs": {name: renamed(job) for name, job in jobs.items()}}


def job_information(data: dict[str, Any]) -> dict[str, Any]:
    """One job in the output of `info`."""
    parsed = JobInfo.from_job(data)
    children = [_child(child) for child in data.get("childs", [])]
    record: dict[str, Any] = renamed({**_with_attempts(data, parsed), "childs": children})
    if "childs" not in data:
        del record["childs"], record["children"]
    if "runtime" in data:
        record["runtime"] = _runtime(data["runtime"], parsed.time)
    record["transitions"] = [{"state": state, "time": moment.timestamp()} for moment, state in parsed.history]
    return record


def _child(child: dict[str, Any]) -> dict[str, Any]:
    parsed = JobInfo.from_child("", child)
    return {**_with_attempts(child, parsed), "runtime": _runtime(child["runtime"], parsed.time)}


def _with_attempts(data: dict[str, Any], parsed: JobInfo) -> dict[str, Any]:
    """The data of a job or iteration, with the usage of its earlier attempts as numbers."""
    if "attempts" not in data:
        return data
    attempts = zip(data["attempts"], parsed.attempts, strict=True)
    return {**data, "attempts": [_runtime(attempt, known.time) for attempt, known in attempts]}


def _runtime(runtime: dict[str, Any], time: timedelta | None) -> dict[str, Any]:
    """The values of an attempt, the last one or an earlier one, as numbers. `time`: how long it took."""
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
            **({"away": in_seconds(have["Away"])} if "Away" in have else {}),
            **({"named": have["Named"]} if "Named" in have else {}),
            **({"gpus": have["Gpus"]} if "Gpus" in have else {}),
            **({"drained": in_seconds(have["Drained"])} if "Drained" in have else {}),
            **({"hosts": in_seconds(have["Hosts"])} if "Hosts" in have else {}),
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
    started, generated = (epoch_seconds(system[key]) for key in ("Started", "Generated"))
    return {
        "id": system["InstanceId"],
        "address": system["Zmqaddress"],
        "publisher": system["StatusPublisher"],
        "interfaces": [name for name in system["Ifaces"].split(";") if name],
        "host": system["Host"],
        "account": system["Account"],
        "wd": system["Wd"],
        "started": started,
        "uptime": generated - started,
        "python": system["Python"],
        "python_version": system["PythonVersion"],
        "platform": system["Platform"],
    }
