"""The reply to `info` as objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

_NODE = re.compile(r"([^,\[\]]+)\[([^\]]*)\]")


@dataclass
class AttemptInfo:
    """An earlier attempt of a job or iteration, after which it was queued again."""

    number: int
    """1 for the first one."""
    cause: str
    """Why it ended: one of the causes of `retry`, `cancel` when it was cancelled, `closed` when its manager ended."""
    exit_code: int | None = None
    messages: str | None = None
    nodes: dict[str, list[str]] = field(default_factory=dict)
    """The cores on each node."""
    started: datetime | None = None
    ended: datetime | None = None
    cpu_time: timedelta | None = None
    cpu_efficiency: float | None = None
    max_memory: int | None = None
    """Peak memory in bytes."""

    @property
    def time(self) -> timedelta | None:
        """Runtime."""
        return None if self.started is None or self.ended is None else self.ended - self.started

    @classmethod
    def from_attempt(cls, info: dict[str, Any]) -> AttemptInfo:
        """From one of the `attempts` in the answer to `jobInfo`."""
        started, ended = (datetime.fromisoformat(info[key]) if key in info else None for key in ("started", "ended"))
        return cls(
            info["attempt"],
            info["cause"],
            info.get("exit_code"),
            info.get("messages"),
            _nodes(info),
            started,
            ended,
            _cpu_time(info),
            _cpu_efficiency(info),
            _max_memory(info),
        )


@dataclass
class JobInfo:
    """A job or one of its iterations."""

    name: str
    status: str
    nodes: dict[str, list[str]] = field(default_factory=dict)
    """The cores on each node."""
    total_cores: int = 0
    wdir: str | None = None
    time: timedelta | None = None
    """Runtime."""
    exit_code: int | None = None
    pid: int | None = None
    iteration: int | None = None
    """Index of an iteration; None for a job."""
    itval: Any = None
    """The value of an iteration that has one: any JSON value, an object for rows and named values."""
    iterations: dict[str, Any] | None = None
    """Counts of the iterations of an iterated job, and `indices` where they are no range."""
    childs: list[JobInfo] = field(default_factory=list)
    history: list[tuple[datetime, str]] = field(default_factory=list)
    messages: str | None = None
    cpu_time: timedelta | None = None
    """CPU time of its last attempt, in the program and in the kernel."""
    cpu_efficiency: float | None = None
    """The part of the time of its cores that it has used, from 0 to 1."""
    max_memory: int | None = None
    """Peak memory in bytes."""
    attempts: list[AttemptInfo] = field(default_factory=list)
    """Earlier attempts."""
    resources: dict[str, Any] = field(default_factory=dict)
    """What it asks for, as in a description, after changes; empty for one of `childs`, as the next three."""
    dependencies: dict[str, list[str]] = field(default_factory=dict)
    retry: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    held_since: datetime | None = None

    @classmethod
    def from_job(cls, info: dict[str, Any]) -> JobInfo:
        """From the `data` of one job in the answer to `jobInfo`."""
        name = str(info["jobName"])
        job = cls(name, str(info["status"]), iterations=info.get("iterations"), messages=info.get("messages"))
        job.itval = info.get("itval")
        job._take_runtime(info.get("runtime", {}))
        job._take_attempts(info)
        job._take_demand(info)
        job.history = _history(info.get("history", ""))
        job.childs = [cls.from_child(name, child) for child in info.get("childs", [])]
        return job

    @classmethod
    def from_child(cls, job_name: str, info: dict[str, Any]) -> JobInfo:
        index = int(info["iteration"])
        child = cls(f"{job_name}:{index}", str(info["state"]), iteration=index, messages=info.get("messages"))
        child.itval = info.get("itval")
        child._take_runtime(info.get("runtime", {}))
        child._take_attempts(info)
        return child

    def _take_runtime(self, runtime: dict[str, str]) -> None:
        self.nodes = _nodes(runtime)
        self.total_cores = sum(map(len, self.nodes.values()))
        self.wdir = runtime.get("wd")
        if "rtime" in runtime:
            self.time = _duration(runtime["rtime"])
        self.exit_code = int(runtime["exit_code"]) if "exit_code" in runtime else None
        self.pid = int(runtime["pid"]) if "pid" in runtime else None
        self.cpu_time = _cpu_time(runtime)
        self.cpu_efficiency = _cpu_efficiency(runtime)
        self.max_memory = _max_memory(runtime)

    def _take_attempts(self, info: dict[str, Any]) -> None:
        self.attempts = [AttemptInfo.from_attempt(attempt) for attempt in info.get("attempts", [])]

    def _take_demand(self, info: dict[str, Any]) -> None:
        self.resources = info.get("resources", {})
        self.dependencies = info.get("dependencies", {})
        self.retry = info.get("retry", {})
        self.priority = info.get("priority", 0)
        self.held_since = datetime.fromisoformat(info["heldSince"]) if "heldSince" in info else None


def seconds_of(text: str) -> float:
    """Seconds of a duration in a reply."""
    return _duration(text).total_seconds()


def _nodes(runtime: dict[str, Any]) -> dict[str, list[str]]:
    return {node: cores.split(":") for node, cores in _NODE.findall(runtime.get("allocation", ""))}


def _cpu_time(runtime: dict[str, Any]) -> timedelta | None:
    return _duration(runtime["cpu_time"]) if "cpu_time" in runtime else None


def _cpu_efficiency(runtime: dict[str, Any]) -> float | None:
    return float(runtime["cpu_efficiency"]) if "cpu_efficiency" in runtime else None


def _max_memory(runtime: dict[str, Any]) -> int | None:
    return int(runtime["max_memory"]) if "max_memory" in runtime else None


def _duration(text: str) -> timedelta:
    """`0:00:02.027212`, or `2 days, 0:00:02.027212`."""
    days, _, clock = text.rpartition(", ")
    hours, minutes, seconds = clock.split(":")
    whole_days = int(days.split()[0]) if days else 0
    return timedelta(days=whole_days, hours=int(hours), minutes=int(minutes), seconds=float(seconds))


def _history(text: str) -> list[tuple[datetime, str]]:
    entries = (line.rsplit(": ", 1) for line in text.splitlines() if line)
    return [(datetime.fromisoformat(date), state) for date, state in entries]
