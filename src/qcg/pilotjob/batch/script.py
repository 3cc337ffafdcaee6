"""The text of a batch script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from msgspec import Struct

from qcg.pilotjob.cluster.errors import BatchError

MODULE = "qcg.pilotjob.batch"
"""What is run inside."""

_SAFE = re.compile(r"[\w@%+=:,./\[\]*-]+", re.ASCII)
_SENSELESS = {
    "--array": "it would run the same jobs several times at once",
    "-a": "it would run the same jobs several times at once",
    "--wrap": "the script is written already",
    "--chdir": "give --wd, which is also where the jobs run",
    "-D": "give --wd, which is also where the jobs run",
}


class Inside(Struct, frozen=True):
    """What is run inside the allocation."""

    python: str
    python_path: str
    """Of the environment; empty when it is not set."""
    books: str
    """The directory that tells how far the run has come."""
    run_dir: str
    most: int
    """Allocations."""
    run: list[str]
    """The arguments of `qcg-pm run` for the first start."""


def batch_script(options: Sequence[str], inside: Inside) -> str:
    """`options` are those of `sbatch`, as `--name=value`."""
    command = [inside.python, "-m", MODULE, f"--books={inside.books}", f"--run-dir={inside.run_dir}"]
    command.append(f"--most={inside.most}")
    lines = ["#!/bin/bash", *(f"#SBATCH {_quoted(option)}" for option in options), ""]
    if inside.python_path:
        lines.append(f"export PYTHONPATH={shlex.quote(inside.python_path)}")
    lines += [
        "# Runs the requests, or goes on with the run where it has begun: in a further allocation, or after Slurm has",
        "# queued this job again.",
        f"exec {shlex.join(command)} -- \\",
        f"    {shlex.join(inside.run)}",
        "",
    ]
    return "\n".join(lines)


def further_options(words: Iterable[str]) -> list[str]:
    """Options of `sbatch` as a user gave them, `--name value` in two words or one, as `--name=value`."""
    found: list[str] = []
    complete = True
    for word in words:
        if word.startswith("-") and word != "-":
            _check(word)
            found.append(word)
            complete = "=" in word or (not word.startswith("--") and len(word) > 2)
        elif complete:
            raise BatchError(f"{word!r} is no option of sbatch: options begin with '-'")
        else:
            found[-1] += ("=" if found[-1].startswith("--") else "") + word
            complete = True
    return found


def has_option(options: Iterable[str], *names: str) -> bool:
    """With whatever value, if any."""
    return any(option_name(option) in names for option in options)


def _check(word: str) -> None:
    name = option_name(word)
    if name in _SENSELESS:
        raise BatchError(f"{name} makes no sense for a run: {_SENSELESS[name]}")


def option_name(option: str) -> str:
    """`--nodes` of `--nodes=4`, `-N` of `-N4`."""
    return option.partition("=")[0] if option.startswith("--") else option[:2]


def _quoted(option: str) -> str:
    """As `sbatch` reads a line of a script: double quotes, with a backslash before those and before backslashes."""
    if "\n" in option or "\0" in option:
        raise BatchError(f"{option!r}: a batch script cannot have options of several lines")
    name, equals, value = option.partition("=")
    if _SAFE.fullmatch(option):
        return option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'
