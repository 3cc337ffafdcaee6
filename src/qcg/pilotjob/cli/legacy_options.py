"""Options of QCG-PilotJob 0.14 and earlier that are accepted and ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from qcg.pilotjob.cli.console import echo_err

Command = Callable[..., Any]

FLAGS = ("--governor", "--enable-proc-stats", "--enable-rt-stats", "--disable-pub", "--disable-nl")
WITH_VALUE = ("--parent", "--tags", "--slurm-partition-nodes", "--slurm-resources-file", "--wrapper-rt-stats")
IMPLY_NET = ("--governor", "--parent", "--slurm-partition-nodes")
"""Options that opened the network interface of a manager, as `--net` does."""
OLD_LEVEL = "notset"
"""A level of `--log` that logged everything, as `debug` does."""

_GIVEN = "qcg.pilotjob.ignored_options"


def accept_legacy_options(command: Command) -> Command:
    """Add hidden options that earlier versions had."""
    for name in FLAGS:
        command = _hidden(name, is_flag=True)(command)
    for name in WITH_VALUE:
        command = _hidden(name)(command)
    return command


def _hidden(name: str, **kind: Any) -> Callable[[Command], Command]:
    def remember(context: click.Context, parameter: click.Parameter, given: object) -> None:
        if given:
            _remember(context, name)

    return click.option(name, hidden=True, expose_value=False, callback=remember, **kind)


def log_level(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Callback of `--log`: the old level `notset` means `debug`."""
    if given != OLD_LEVEL:
        return given
    _remember(context, f"--log {OLD_LEVEL}")
    return "debug"


def _remember(context: click.Context, option: str) -> None:
    context.meta.setdefault(_GIVEN, []).append(option)


def ignored_options(context: click.Context) -> list[str]:
    """Options on this command line that have no effect."""
    return list(context.meta.get(_GIVEN, []))


def implies_net(context: click.Context) -> bool:
    return any(option in IMPLY_NET for option in ignored_options(context))


def print_ignored_options(context: click.Context) -> None:
    """Print one line that names every ignored option."""
    ignored = ignored_options(context)
    if ignored:
        has = "has" if len(ignored) == 1 else "have"
        nets = [option for option in ignored if option in IMPLY_NET]
        further = [f"{', '.join(nets)} still open{'s' if len(nets) == 1 else ''} the network interface"] if nets else []
        further += [f"--log {OLD_LEVEL} logs as debug does"] if f"--log {OLD_LEVEL}" in ignored else []
        but = f"; but {', and '.join(further)}" if further else ""
        echo_err(f"Note: {', '.join(ignored)} {has} no meaning in this version of QCG-PilotJob{but}.")
