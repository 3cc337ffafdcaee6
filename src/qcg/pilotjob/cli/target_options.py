"""`--path` and `--address`, given before a command or as its own options."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from qcg.pilotjob.common.environment import RUN_DIRECTORY

_TARGET = "qcg.pilotjob.target"


class Target(NamedTuple):
    """The run or manager given on the command line."""

    path: str | None = None
    address: str | None = None


def set_target(context: click.Context, target: Target) -> None:
    """Store the options given before the command."""
    context.meta[_TARGET] = target


def target_of(context: click.Context, path: str | None, address: str | None) -> Target:
    """The options of the command, or else the options given before it."""
    own = Target(path, address)
    before: Target = context.meta.get(_TARGET, Target())
    target = before if own == Target() else own
    if target.path and target.address:
        raise click.UsageError("give --path or --address, not both", context)
    return target


def directory_option(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: give `directory` to a command that needs no manager.

    It is DIRECTORY, `--path`, the `--path` before the command, `$QCG_PJM_DIR`, or the working directory.
    """

    @click.argument("directory", type=click.Path(path_type=Path, readable=False), required=False)
    @click.option("-p", "--path", type=click.Path(readable=False), metavar="DIR", help="The same as DIRECTORY.")
    @functools.wraps(command)
    def body(directory: Path | None, path: str | None, **given: Any) -> None:
        context = click.get_current_context()
        if directory is not None and path is not None:
            raise click.UsageError("give DIRECTORY or --path, not both", context)
        found = path or target_of(context, None, None).path or os.environ.get(RUN_DIRECTORY) or "."
        command(directory=directory or Path(found), **given)

    return body
