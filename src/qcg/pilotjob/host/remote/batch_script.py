"""The batch script of an attempt: directives, one line that runs the attempt, and the launch itself in a comment."""

import json
import os
import re
from shlex import quote
from typing import Any, Dict, List, NamedTuple

from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.host.remote.attempts import SCRIPT, STDERR, STDOUT
from qcg.pilotjob.host.remote.batch_queue import BatchQueue
from qcg.pilotjob.host.remote.launches import read_launch
from qcg.pilotjob.host.safe_open import read_own

MOST_BYTES = 64 << 20
LONGEST_JOB_NAME = 40
TIME_FOR_THE_END = 60.0
"""Seconds that a batch job gets beyond the wall time of its attempt, which the runner itself enforces."""

_PAYLOAD = "# attempt: "
_LONG_OPTION = re.compile(r"^#\S+ (--[\w-]+)", re.MULTILINE)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class AttemptFile(NamedTuple):
    """Input of the runner on a compute node."""

    launch: Launch
    """With absolute paths."""
    service: str
    """The directory of service files of the run."""
    label: str
    """The name of the batch system in messages."""
    id_variable: str
    grace: float


def unique_name(launch: Launch, instance: str) -> str:
    """The name of the batch job in the queue: the name of the job for people, run and attempt to make it unique."""
    name = launch.remote.name if launch.remote is not None else ""
    parts = (name[:LONGEST_JOB_NAME] or "job", instance, launch.id)
    return ".".join(_NOT_IN_NAMES.sub("_", part) for part in parts)


def batch_script(
    launch: Launch, directory: str, service: str, name: str, queue: BatchQueue, command: List[str]
) -> bytes:
    """The text of a batch script. `command`: the far side, to which the name of a sub-command is added. Raises
    BatchRefusal."""
    fields = {"name": name, "output": "%s/%s" % (directory, STDOUT), "error": "%s/%s" % (directory, STDERR)}
    fields.update(_requested(launch))
    own: Dict[str, Any] = {} if launch.remote is None else dict(launch.remote.directives)
    directives = queue.directive_lines(fields, own)
    payload = {
        "launch": launch,
        "service": service,
        "label": queue.label,
        "id_variable": queue.id_variable,
        "grace": queue.grace,
    }
    lines = ["#!/bin/sh"] + directives
    lines += ["exec %s" % " ".join(quote(word) for word in command + ["run-job", directory])]
    lines += [_PAYLOAD + json.dumps(payload), ""]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def read_attempt(directory: str) -> AttemptFile:
    """Read the script of an attempt. Raises OSError, or ValueError for a damaged one."""
    text = read_own("%s/%s" % (directory, SCRIPT), MOST_BYTES).decode("utf-8", "surrogateescape")
    for line in text.splitlines():
        if line.startswith(_PAYLOAD):
            read = json.loads(line[len(_PAYLOAD) :])
            launch = read_launch(read["launch"])
            return AttemptFile(launch, read["service"], read["label"], read["id_variable"], float(read["grace"]))
    raise ValueError("the script %s/%s names no attempt" % (directory, SCRIPT))


def options_of(directory: str) -> List[str]:
    """The names of the long options in the directives of a script. Raises OSError."""
    text = read_own("%s/%s" % (directory, SCRIPT), MOST_BYTES).decode("utf-8", "surrogateescape")
    return _LONG_OPTION.findall(text)


def write_script(directory: str, content: bytes) -> None:
    """Replace the script of an attempt. Raises OSError."""
    path = "%s/%s" % (directory, SCRIPT)
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.rename(path + ".new", path)


def _requested(launch: Launch) -> Dict[str, str]:
    """The resource request of the job, as fields of directives. Cores without a number of nodes are those of one
    node."""
    fields = {"nodes": "1"}
    if launch.remote is not None:
        request = launch.remote.request
        asked = {"nodes": request.nodes, "cores": request.cores, "gpus": request.gpus, "memory": request.memory}
        fields.update((name, str(number)) for name, number in asked.items() if number)
        if request.nodes and not request.cores:
            fields["whole_nodes"] = ""
    if launch.wall_time is not None:
        seconds = int(launch.wall_time + TIME_FOR_THE_END)
        fields["seconds"] = str(seconds)
        fields["minutes"] = str(-(-seconds // 60))
        fields["hms"] = "%d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    return fields
