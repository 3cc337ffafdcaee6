"""Warnings about programs and arguments that were most likely meant for a shell."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence

import msgspec

from qcg.pilotjob.description.args_in_one_string import warning_about_args
from qcg.pilotjob.description.errors import quoted
from qcg.pilotjob.description.model import Execution

ADVICE = "put a shell command into script, or the program into exec and its arguments into args"


def args_in_one_string(jobs: Sequence[msgspec.Raw], path: str) -> list[str]:
    """Warnings about valid jobs whose `args` is one string with blanks. `path`: the position of `jobs` in the file."""
    found = [(number, warning_about_args(job)) for number, job in enumerate(jobs)]
    return [f"{path}[{number}].args: {named[1]}" for number, named in found if named is not None]


def shell_line_as_program(execution: Execution) -> list[str]:
    """A warning about a program with blanks in its name that does not exist.

    Relative paths are resolved from the current directory, where the manager is usually started.
    """
    program = execution.exec or ""
    if " " not in program.strip() or _may_exist(program, execution.wd or ""):
        return []
    return [f"there is no program {quoted(program)}; {ADVICE}"]


_OF_SHELL = frozenset([".", "alias", "cd", "eval", "export", "module", "set", "source", "ulimit", "umask", "unset"])


def shell_command_as_program(words: Sequence[str], wd: str) -> list[str]:
    """A warning about a program of a command line that a shell should run. `wd`: where relative paths start."""
    if not words or _may_exist(words[0], wd):
        return []
    command = shlex.quote(words[0] if len(words) == 1 else shlex.join(words))
    if words[0] in _OF_SHELL:
        return [f"{words[0]} is a command of the shell and no program; write: -- sh -c {command}"]
    if " " not in words[0].strip():
        return []
    return [
        f"{quoted(words[0])} is one word, the name of a program; leave out its quotes, or write: -- sh -c {command}"
    ]


def _may_exist(program: str, wd: str) -> bool:
    """Whether the program exists, or its path has variables, whose values are known when the job starts."""
    if "/" not in program:
        return "${" in program or shutil.which(program) is not None
    place = os.path.join(wd, program)
    return "${" in place or os.path.lexists(place)
