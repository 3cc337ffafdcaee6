"""Entries of `jobs.report` as text and as JSON."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec

from qcg.pilotjob.common.printable import printable, printable_json, printable_lines
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.report.formats import STATE_NAMES, duration, iso_timestamp, shared_timestamp, timestamp
from qcg.pilotjob.report.record import JobEnd, dependencies_form, execution_form, resources_form

_encode = msgspec.json.Encoder().encode

# Many jobs have the same cores, directories and programs.
_shared_text = lru_cache(maxsize=4096)(printable)


@lru_cache(maxsize=4096)
def _allocation(grant: Grant) -> str:
    return printable(str(grant))


def text_entry(end: JobEnd) -> bytes:
    """A block of lines: the name and the state, then one indented line for each known value."""
    # Not built from `history` and `runtime_strings`: this runs once a job, and takes half the time this way.
    state = STATE_NAMES[end.state]
    text = f"{printable(end.name)} ({state})\n    {shared_timestamp(end.submitted)}: QUEUED"
    if end.scheduled:
        text += f"\n    {shared_timestamp(end.scheduled)}: SCHEDULED"
    if end.started:
        text += f"\n    {timestamp(end.started)}: EXECUTING"
    text += f"\n    {timestamp(end.ended)}: {state}"
    if end.grant is not None:
        text += f"\n    allocation: {_allocation(end.grant)}\n    wd: {_shared_text(end.wd)}"
        if end.started:
            text += f"\n    rtime: {duration(end.ended - end.started)}"
        if end.exit_code is not None:
            text += f"\n    exit_code: {end.exit_code}"
        if end.pid:
            text += f"\n    pid: {end.pid}"
        text += f"\n    pname: {_shared_text(end.pname)}"
    if end.iterations is not None:
        counts = msgspec.structs.asdict(end.iterations)
        text += f"\n    iterations: {', '.join([f'{key} {count}' for key, count in counts.items()])}"
    if end.message:
        message = printable_lines(end.message.strip()).replace("\n", "\n        ")
        text += f"\n    messages: {message}"
    return f"{text}\n".encode()


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
    description = end.description
    if description is not None:
        entry["execution"] = execution_form(description.execution)
        entry["resources"] = resources_form(description)
        entry["dependencies"] = dependencies_form(description)
        if description.attributes:
            entry["attributes"] = description.attributes
    if end.iterations is not None:
        entry["iterations"] = end.iterations
    if end.message:
        entry["messages"] = end.message
    return entry


def runtime_strings(end: JobEnd) -> dict[str, str]:
    """The known values of an attempt, all as strings."""
    if end.grant is None:
        return {}
    runtime = {"allocation": _allocation(end.grant), "wd": end.wd}
    if end.rtime is not None:
        runtime["rtime"] = duration(end.rtime)
    if end.exit_code is not None:
        runtime["exit_code"] = str(end.exit_code)
    if end.pid:
        runtime["pid"] = str(end.pid)
    runtime["pname"] = end.pname
    return runtime
