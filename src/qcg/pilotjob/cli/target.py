"""`--path` and `--address`, given before a command or as its own options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

DIRECTORY = "QCG_PJM_DIR"
"""Environment variable: the run or working directory that commands ask about."""
_TARGET = "qcg.pilotjob.target"


class Target(NamedTuple):
    """Where to look for a run, as far as the command line says."""

    path: str | None = None
    address: str | None = None


def set_target(context: click.Context, target: Target) -> None:
    """Keep what was given before the command."""
    context.meta[_TARGET] = target


def target_of(context: click.Context, path: str | None, address: str | None) -> Target:
    """The command's own options; without them, those given before it."""
    own = Target(path, address)
    before: Target = context.meta.get(_TARGET, Target())
    target = before if own == Target() else own
    if target.path and target.address:
        raise click.UsageError("give --path or --address, not both", context)
    return target


def directory_of(context: click.Context, given: Path | None) -> Path:
    """The directory that a command without a manager looks at: its argument, `--path`, `$QCG_PJM_DIR`, or this one."""
    if given is not None:
        return given
    return Path(target_of(context, None, None).path or os.environ.get(DIRECTORY) or ".")
