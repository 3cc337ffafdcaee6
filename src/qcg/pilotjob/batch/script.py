"""The text of a batch script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec import Struct

from qcg.pilotjob.common.exit_codes import CANNOT_START

MODULE = "qcg.pilotjob.batch"
"""The module that a batch script runs."""


class ScriptCommand(Struct, frozen=True):
    """The command of a batch script: `python -m qcg.pilotjob.batch` with its arguments."""

    python: str
    python_path: str
    """PYTHONPATH of the user; empty when it is not set."""
    wd: str
    """The working directory of the run, absolute."""
    state: str
    """The directory with the chain state."""
    run_dir: str
    most: int
    """Largest number of allocations of the chain."""
    run: list[str]
    """The arguments of `qcg-pm run` for the first start."""


def batch_script(directives: Sequence[str], command: ScriptCommand) -> str:
    """A batch script. `directives`: the lines that describe the allocation to the batch system.

    The script changes to the working directory itself. The batch system has to run it with bash on the first node of
    the allocation, in the environment of the process that submitted it, with its standard output and standard error in
    one file, which can be read while the script runs.
    """
    words = [command.python, "-m", MODULE, f"--state-dir={command.state}", f"--run-dir={command.run_dir}"]
    words.append(f"--max-allocations={command.most}")
    lines = ["#!/bin/bash", *directives, ""]
    if command.python_path:
        lines.append(f"export PYTHONPATH={shlex.quote(command.python_path)}")
    lines += [
        f"cd -- {shlex.quote(command.wd)} || exit {CANNOT_START}",
        "# Runs the requests, or continues the run: in a further allocation, or after this job was queued again.",
        f"exec {shlex.join(words)} -- \\",
        f"    {shlex.join(command.run)}",
        "",
    ]
    return "\n".join(lines)
