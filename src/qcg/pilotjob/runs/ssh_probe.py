"""Check by ssh whether an agent and its jobs have ended on a node."""

from __future__ import annotations

import shlex
import subprocess

from qcg.pilotjob.host.records import STEP_ID

SSH_TIMEOUT = 30.0
STILL_THERE = 3


def has_left(node: str, pid: int, instance: str) -> bool:
    """Whether neither the agent nor a job of this run is on the node. False when the node cannot be reached."""
    mark = shlex.quote(f"{STEP_ID}={instance}.")
    look = f"if test -e /proc/{pid} || grep -qsaF {mark} /proc/[0-9]*/environ; then exit {STILL_THERE}; fi"
    command = ["ssh", "-n", "-oBatchMode=yes", "-oConnectTimeout=10", node, f"sh -c {shlex.quote(look)}"]
    try:
        answer = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SSH_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0
