"""Removes the directory of an ended run on a remote host, with one ssh command."""

from __future__ import annotations

import os

from qcg.pilotjob.executors.ssh.commands import control_path, side_control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.transport import OneShotTransport, RemoteError
from qcg.pilotjob.executors.ssh.user_connection import socket_path
from qcg.pilotjob.host.remote.errors import ABSENT


async def remove_run_directory(config: HostConfig, run_id: str, instance: str) -> bool:
    """Returns whether there was one. The host removes only a directory that records this instance.

    Raises: ConnectionProblem when no address can be reached; RemoteError with the answer of the host."""
    path = control_path(config, os.getuid(), instance[:8])
    problems = []
    for address in config.addresses:
        control = side_control(config, await socket_path(config, address, path))
        transport = OneShotTransport(config, address, config.run_directory(run_id), control)
        try:
            await transport.call({"do": "remote-tidy", "purge": instance})
        except ConnectionProblem as problem:
            problems.append(str(problem))
        except RemoteError as error:
            if error.code == ABSENT:
                return False
            raise
        else:
            return True
        finally:
            transport.close()
    raise ConnectionProblem("; ".join(dict.fromkeys(problems)))
