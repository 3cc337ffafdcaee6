"""Programs and arguments that are allowed in a description, and were most likely meant for a shell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import msgspec

from qcg.pilotjob.description.errors import quoted
from qcg.pilotjob.description.model import Execution

INSTEAD = "a line for a shell goes into script, or its words into exec and args"


class _Args(msgspec.Struct):
    """Of a description in the simple form, what tells a string from a list: the model knows lists alone."""

    args: Any = None


_args_of = msgspec.json.Decoder(_Args).decode


def strings_of_arguments(jobs: Sequence[msgspec.Raw], path: str) -> list[str]:
    """Sentences, with their places, about jobs that are right in their form."""
    given = [_args_of(job).args for job in jobs]
    return [
        f"{path}[{number}].args: {quoted(args)} is one argument with blanks in it; write a list for several"
        for number, args in enumerate(given)
        if isinstance(args, str) and " " in args.strip()
    ]


def line_as_program(execution: Execution) -> list[str]:
    """A sentence about a program with blanks in its name that is not there. It is looked for from here: where jobs
    work is known to their manager, which is most often started here."""
    program = execution.exec or ""
    if " " not in program.strip() or _is_there(program, execution.wd or ""):
        return []
    return [f"there is no program {quoted(program)}; {INSTEAD}"]


def _is_there(program: str, wd: str) -> bool:
    """Or may be: what variables stand for is known when the job starts."""
    if "/" not in program:
        return "${" in program or shutil.which(program) is not None
    place = os.path.join(wd, program)
    return "${" in place or os.path.lexists(place)
