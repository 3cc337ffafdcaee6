"""Opens the shared connection to a host where a person has to log in."""

from __future__ import annotations

import os
import subprocess

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.errors import Denial, Refusal
from qcg.pilotjob.executors.ssh.commands import (
    Control,
    check_command,
    connect_command,
    control_directory,
    control_path,
    destination,
)
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.host.safe_open import UnsafeFile, check_own_directory


def open_connection(config: HostConfig) -> None:
    """Open a connection to the first address that admits one, unless one is open. ssh asks at the terminal."""
    if config.second_factor == "none":
        echo(f'{config.name} has second_factor = "none": managers connect by themselves.')
        return
    path = control_path(config, os.getuid(), "own")
    if path:
        _make_control_directory()
    control = Control("no", path)
    for address in config.addresses:
        there = destination(config, address)
        if _run(check_command(config, address, control), quiet=True) == 0:
            echo(f"A connection to {there} is open already.")
            return
        if _run(connect_command(config, address, control)) != 0:
            continue
        if _run(check_command(config, address, control), quiet=True) == 0:
            echo(f"A connection to {there} is open now.")
            return
        raise Denial(
            f"ssh logged in to {there}, but keeps no shared connection;"
            f' set ControlPath in your ssh configuration, or second_factor = "own" for {config.name}'
        )
    raise Denial(f"no connection to {config.name} could be opened; `qcg-pm hosts check {config.name}` tests every step")


def _run(command: list[str], *, quiet: bool = False) -> int:
    try:
        output = subprocess.DEVNULL if quiet else None
        return subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    except OSError as error:
        raise Refusal(f"{command[0]!r} cannot be started: {error.strerror}; check `ssh` in hosts.toml") from None


def _make_control_directory() -> None:
    directory = control_directory(os.getuid())
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        check_own_directory(directory)
    except UnsafeFile as unsafe:
        raise Refusal(unsafe.sentence) from None
    except OSError as error:
        raise Refusal(f"{directory} cannot be made: {error.strerror}") from None
