"""The JSON Schema of request files, generated from the input forms, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

import msgspec

from qcg.pilotjob.description.forms import SimpleForm, StandardForm
from qcg.pilotjob.description.limits import MAX_EXPANSION, MAX_EXPANSION_OF_SUBMISSION
from qcg.pilotjob.description.requests import REQUESTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TITLES = {
    "StandardForm": "Job, standard form",
    "SimpleForm": "Job, simple form",
    "ExecutionForm": "Execution",
    "ModelOptionsForm": "Model options",
    "ResourcesForm": "Resources",
    "AmountForm": "Number of cores or nodes",
    "SchedulerForm": "Iteration scheduler",
    "SchedulerParamsForm": "Scheduler settings",
    "IterationForm": "Iteration",
    "DependenciesForm": "Dependencies",
    "RemoteForm": "Remote host",
    "RetryForm": "Retries",
    "GrowForm": "Growth of resources with each attempt",
}


def request_file_schema() -> dict[str, Any]:
    """The schema of a whole file: an array of requests, or one request."""
    forms: list[type[msgspec.Struct]] = [*REQUESTS.values(), StandardForm, SimpleForm]
    references, components = msgspec.json.schema_components(forms, ref_template="#/$defs/{name}")
    *requests, standard, simple = references
    components["Submit"]["properties"]["jobs"]["items"] = {"anyOf": [standard, simple]}
    for choice in components["RerunJob"]["properties"]["jobs"]["anyOf"]:
        if choice.get("type") == "array":
            choice["items"] = {"anyOf": [standard, simple]}
    components["RerunJob"]["anyOf"] = [_given(key) for key in ("jobNames", "states", "jobs")]
    for name in ("ExecutionForm", "SimpleForm"):
        components[name] |= {**_one_start, **_one_place_of_output}
    components["RetryForm"] |= _one_number_of_retries
    for name in ("JobStatus", "JobInfo", "Why", "CancelJob", "HoldJob", "ReleaseJob", "SetJob", "RemoveJob"):
        components[name]["anyOf"] = [{"required": ["jobNames"]}, {"required": ["jobName"]}]
    components["SetJob"]["allOf"] = [{"anyOf": [*map(_given, _settable), _node_crs_given]}]
    components["AmountForm"] |= _one_kind_of_amount
    components["IterationForm"] |= _one_kind_of_iteration
    for name, title in _TITLES.items():
        components[name]["title"] = title
    for name, request in REQUESTS.items():
        components[request.__name__]["title"] = f"Request {name}"
    return {
        "$schema": DIALECT,
        "title": "QCG-PilotJob request file",
        "description": (
            "Requests that the manager carries out in this order, or one request. The values of variables may have"
            f" {MAX_EXPANSION} characters in one job, and {MAX_EXPANSION_OF_SUBMISSION} in all jobs of one submission."
        ),
        "anyOf": [{"type": "array", "items": {"anyOf": requests}}, *requests],
        "$defs": components,
    }


def _given(key: str) -> dict[str, Any]:
    """A schema for a key that is present and not null."""
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


_settable = ("numCores", "numNodes", "mem", "wt", "priority")
_node_crs_given = {"required": ["nodeCrs"], "properties": {"nodeCrs": {"type": "object", "minProperties": 1}}}
_one_place_of_output: dict[str, Any] = {
    "not": {
        "required": ["output"],
        "properties": {"output": {"const": "stream"}},
        "anyOf": [
            {"required": [key], "properties": {key: {"type": "string", "minLength": 1}}} for key in ("stdout", "stderr")
        ],
    }
}
_one_number_of_retries: dict[str, Any] = {
    "not": {"allOf": [_given("max"), {"required": ["on"], "properties": {"on": {"type": "object"}}}]}
}
_one_start: dict[str, Any] = {"oneOf": [_given("exec"), _given("script")]}
_one_kind_of_amount: dict[str, Any] = {
    "anyOf": [_given(key) for key in ("exact", "min", "max", "scheduler", "split-into")],
    "not": {
        "anyOf": [
            {"allOf": [_given("exact"), {"anyOf": [_given(key) for key in ("min", "max", "scheduler", "split-into")]}]},
            {"allOf": [_given("max"), {"anyOf": [_given(key) for key in ("scheduler", "split-into")]}]},
        ]
    },
}
_kinds_of_iteration = ("values", "indices", "file", "product", "zip")
_one_kind_of_iteration: dict[str, Any] = {
    "oneOf": [_given(key) for key in ("stop", *_kinds_of_iteration)],
    "not": {
        "anyOf": [{"allOf": [{"anyOf": [_given("start"), _given("step")]}, _given(key)]} for key in _kinds_of_iteration]
    },
}
