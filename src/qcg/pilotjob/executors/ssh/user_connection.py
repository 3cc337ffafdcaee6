"""Shared connections that a person has opened, for hosts with a second factor: is one open, and where is its socket?"""

from __future__ import annotations

from qcg.pilotjob.executors.ssh import child
from qcg.pilotjob.executors.ssh.commands import Control, check_command, settings_command
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import not_startable

PATIENCE = 15.0


async def is_open(config: HostConfig, address: str, path: str) -> bool:
    """Whether a connection is open. `path`: its ControlPath. Raises ConnectionProblem when ssh cannot be started."""
    return (await _run(config, check_command(config, address, Control("no", path)))).exit_code == 0


async def socket_path(config: HostConfig, address: str, path: str) -> str:
    """The ControlPath without its tokens, as the ssh configuration of the user has it for this address.

    Commands that must not log in need it: they replace a ProxyJump of the user, and so the value of `%C`, which depends
    on ProxyJump from OpenSSH 9.6 on. Raises ConnectionProblem when ssh cannot be started.
    """
    if config.second_factor == "none":
        return path
    found = await _run(config, settings_command(config, address, Control("no", path)))
    for line in found.stdout.decode("utf-8", "surrogateescape").splitlines():
        keyword, _, value = line.partition(" ")
        if keyword == "controlpath" and value != "none":
            return value
    return path


async def _run(config: HostConfig, argv: list[str]) -> child.Finished:
    try:
        return await child.run(argv, PATIENCE)
    except OSError as error:
        raise not_startable(config, argv[0], error) from None
