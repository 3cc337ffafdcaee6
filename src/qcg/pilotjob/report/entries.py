"""Entries of `jobs.report` as text and as JSON."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET

from qcg.pilotjob.common.printable import printable, printable_json, printable_lines
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.host.usage import bytes_text
from qcg.pilotjob.journal.records import PastAttemptRecord
from qcg.pilotjob.report.formats import STATE_NAMES, duration, iso_timestamp, shared_timestamp, timestamp
from qcg.pilotjob.report.record import (
    JobEnd,
    attempt_forms,
    dependencies_form,
    execution_form,
    remote_form,
    resources_form,
    retry_form,
    usage_strings,
)

_encode = msgspec.json.Encoder().encode

# Many jobs have the same cores, directories and programs.
_shared_text = lru_cache(maxsize=4096)(printable)
_memory = lru_cache(maxsize=4096)(bytes_text)


@lru_cache(maxsize=4096)
def _shared_allocation(grant: Grant) -> str:
    return printable(str(grant))


def _allocation(grant: Grant) -> str:
    if len(grant.parts) != 1:
        return _shared_allocation(grant)
    # Not cached: on a large machine, a grant returns only after a cache has dropped it.
    part = grant.parts[0]
    return f"{_shared_text(part.node)}[{':'.join(map(str, part.cores))}]"


def text_entry(end: JobEnd) -> bytes:
    """A block of lines: the name and the state, then one indented line for each known value."""
    # Not built from `history` and `runtime_strings`, and in few steps: this runs once a job, and takes half the time.
    state = STATE_NAMES[end.state]
    earlier = (
        "".join([f"\n    {timestamp(at)}: {STATE_NAMES[one]}" for one, at in _earlier_history(end)])
        if end.earlier
        else ""
    )
    scheduled = f"\n    {shared_timestamp(end.scheduled)}: SCHEDULED" if end.scheduled else ""
    started = f"\n    {timestamp(end.started)}: EXECUTING" if end.started else ""
    attempt = "" if end.grant is None else _attempt_lines(end, end.grant)
    text = (
        f"{printable(end.name)} ({state})\n    {shared_timestamp(end.submitted)}: QUEUED{earlier}{scheduled}{started}"
        f"\n    {timestamp(end.ended)}: {state}{attempt}"
    )
    if end.value is not UNSET:
        text += f"\n    itval: {value_text(end.value)}"
    if end.earlier:
        text += "".join([f"\n    attempt {number}: {_summary(one)}" for number, one in enumerate(end.earlier, 1)])
    if end.iterations is not None:
        counts = msgspec.structs.asdict(end.iterations)
        text += f"\n    iterations: {', '.join([f'{key} {count}' for key, count in counts.items()])}"
    if end.message:
        message = printable_lines(end.message.strip()).replace("\n", "\n        ")
        text += f"\n    messages: {message}"
    return f"{text}\n".encode()


def _attempt_lines(end: JobEnd, grant: Grant) -> str:
    """The lines about the last attempt."""
    usage = end.usage
    named = f"\n    named: {grant.extra_text}" if grant.extra is not None else ""
    rtime = f"\n    rtime: {duration(end.ended - end.started)}" if end.started else ""
    used = ""
    if usage is not None:
        used = f"\n    cpu_time: {duration(usage.cpu)}\n    max_memory: {_memory(usage.memory << 10)}"
    exit_code = f"\n    exit_code: {end.exit_code}" if end.exit_code is not None else ""
    pid = f"\n    pid: {end.pid}" if end.pid else ""
    return (
        f"\n    allocation: {_allocation(grant)}\n    wd: {_shared_text(end.wd)}{named}{rtime}{used}{exit_code}{pid}"
        f"\n    pname: {_shared_text(end.pname)}"
    )


def _earlier_history(end: JobEnd) -> list[tuple[State, float]]:
    """The states of earlier attempts with their times."""
    extra = [at for at in (end.scheduled, end.started, end.ended) if at]
    return end.history[1 : -len(extra) or None]


def _summary(attempt: PastAttemptRecord) -> str:
    """An earlier attempt in one line: cause, message, allocation and duration."""
    text = printable(attempt.message).replace("\n", " ") or attempt.cause
    if attempt.message and attempt.cause != "exit":
        text = f"{attempt.cause}: {text}"
    if attempt.grant is not None:
        text = f"{text.rstrip('.')}; on {_allocation(attempt.grant)}"
    if attempt.started and attempt.ended:
        text += f" for {duration(attempt.ended - attempt.started)}"
    return text


def json_entry(end: JobEnd) -> bytes:
    """One JSON object in one line."""
    entry = _json_object(end)
    try:
        return printable_json(_encode(entry)) + b"\n"
    except UnicodeEncodeError:
        # msgspec rejects a file name that is not UTF-8; the encoder of the standard library escapes it.
        return json.dumps(msgspec.to_builtins(entry)).encode() + b"\n"


def _json_object(end: JobEnd) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": end.name,
        "state": STATE_NAMES[end.state],
        "history": [{"state": STATE_NAMES[state], "date": iso_timestamp(at)} for state, at in end.history],
        "runtime": runtime_strings(end),
    }
    if end.value is not UNSET:
        entry["itval"] = end.value
    description = end.description
    if description is not None:
        entry["execution"] = execution_form(description.execution)
        entry["resources"] = resources_form(description)
        entry["dependencies"] = dependencies_form(description)
        if description.request.host:
            entry["remote"] = remote_form(description)
        if description.attributes:
            entry["attributes"] = description.attributes
        if description.retry is not None:
            entry["retry"] = retry_form(description.retry)
        if description.priority:
            entry["priority"] = description.priority
    if end.earlier:
        entry["attempts"] = attempt_forms(end)
    if end.iterations is not None:
        entry["iterations"] = end.iterations
    if end.message:
        entry["messages"] = end.message
    return entry


def value_text(value: Any) -> str:
    """The value of an iteration in one line: `T=300, p=1` for an object, JSON for anything else."""
    if isinstance(value, dict):
        return ", ".join([f"{printable(name)}={_one_line(inner)}" for name, inner in value.items()])
    return _one_line(value)


def _one_line(value: Any) -> str:
    return printable(value if isinstance(value, str) else _encode(value).decode())


def runtime_strings(end: JobEnd) -> dict[str, str]:
    """The known values of an attempt, all as strings."""
    if end.grant is None:
        return {}
    runtime = {"allocation": _allocation(end.grant), "wd": end.wd}
    if end.grant.extra is not None:
        runtime["named"] = end.grant.extra_text
    if end.rtime is not None:
        runtime["rtime"] = duration(end.rtime)
    if end.usage is not None:
        runtime |= usage_strings(end.usage, end.grant, end.rtime)
    if end.exit_code is not None:
        runtime["exit_code"] = str(end.exit_code)
    if end.pid:
        runtime["pid"] = str(end.pid)
    runtime["pname"] = end.pname
    return runtime
