"""Instructions for an administrator or user to admit only the commands of QCG-PilotJob on a host."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from qcg.pilotjob.cli.errors import Refusal
from qcg.pilotjob.executors.ssh.commands import destination
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.host.remote.gate import DIRECTORY, EVERYTHING

PLACE = "/opt/qcg-pm/qcg-pm-remote.pyz"
KEY = "ssh-ed25519 AAAA… the public key of the manager's user"
_KINDS = ("ssh-", "ecdsa-", "sk-")


def write_program(path: Path) -> None:
    """Write the far side as one file, which any Python from 3.6 runs."""
    from qcg.pilotjob.executors.ssh.zipapp import far_program

    try:
        path.write_bytes(far_program().content)
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {os.strerror(error.errno or 0)}") from None


def gate_lines(
    config: HostConfig, place: str | None, admit: str | None, refuse: str | None, key: Path | None
) -> Iterator[str]:
    """Lines to show: comments, commands to type, the line of authorized_keys, the key of hosts.toml."""
    for given in (admit, refuse):
        _check_names(given)
    if place is not None and not place.startswith("/"):
        raise ValueError(f"--to takes an absolute path on the host, not {place!r}")
    public = _read_key(key) if key is not None else KEY
    far = _far_command(config, place)
    file = next((word for word in far if word.endswith(".pyz")), PLACE)
    there = destination(config, config.addresses[0])
    yield f"# 1. Install the program on {config.name}, as a user who may write to {os.path.dirname(file)} there:"
    yield shlex.join(["qcg-pm", "hosts", "gate", config.name, "--write", os.path.basename(file)])
    yield shlex.join(["rsync", os.path.basename(file), f"{there}:{file}"])
    yield f"# 2. Put this line into ~/.ssh/authorized_keys of {config.owner or 'the user'} on {config.name}:"
    yield f"{_forced(_gate_command(config, far, admit, refuse))},restrict {public}"
    if config.command != tuple(far):
        yield f"# 3. Name the program in {config.source or 'hosts.toml'}, below [{config.name}]:"
        yield f'command = "{shlex.join(far)}"'


def _far_command(config: HostConfig, place: str | None) -> list[str]:
    if place is not None:
        return [config.python, place]
    return [*config.command] or [config.python, PLACE]


def _gate_command(config: HostConfig, far: list[str], admit: str | None, refuse: str | None) -> list[str]:
    words = [*far, "gate"]
    if config.directory != DIRECTORY:
        words += ["--directory", config.directory]
    if not any(word.endswith(".pyz") for word in far):
        # A program of another name may be a script that starts the zipapp.
        words += ["--command", " ".join(far)]
    for option, names in (("--admit", admit), ("--refuse", refuse)):
        if names:
            words += [option, ",".join(names.replace(",", " ").split())]
    return words


def _forced(words: list[str]) -> str:
    """The option of authorized_keys that forces a command, with quotes as sshd reads them."""
    text = shlex.join(words).replace("\\", "\\\\").replace('"', '\\"')
    return f'command="{text}"'


def _check_names(given: str | None) -> None:
    for name in (given or "").replace(",", " ").split():
        if name not in EVERYTHING:
            raise ValueError(f"{name!r} is nothing that a gate can admit; it is one of: {', '.join(EVERYTHING)}")


def _read_key(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--key {path} cannot be read: {error}") from None
    if len(lines) != 1 or not lines[0].startswith(_KINDS):
        raise ValueError(f"--key {path} is no public key of ssh; its name usually ends with .pub")
    return lines[0]
