"""Views log files of jobs on a remote host, with one ssh command, whether or not a manager is running."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qcg.pilotjob.executors.ssh.commands import UNSHARED, Control, control_path, side_control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.frames import FrameError, new_marker, request_frame
from qcg.pilotjob.executors.ssh.marker import read_states
from qcg.pilotjob.executors.ssh.transport import LOGIN_PATIENCE, OneShotTransport, checked
from qcg.pilotjob.executors.ssh.user_connection import socket_path


class LogViewer:
    """Lists, shows and follows the files of attempts of one run on one host."""

    def __init__(self, config: HostConfig, run_dir: Path, run_id: str, label: str) -> None:
        """`run_dir`: of the manager; it knows the address in use. `label`: as for `control_path`."""
        used = read_states(run_dir).get(config.name)
        last = used.address if used is not None and used.address in config.addresses else config.addresses[0]
        self._config = config
        self._addresses = sorted(config.addresses, key=lambda address: address != last)
        self._run = config.run_directory(run_id)
        self._path = control_path(config, os.getuid(), label)

    async def view(self, directory: str, mode: str, file: str, write: Callable[[bytes], None]) -> list[str]:
        """`mode`: list, cat or tail. `write` gets the bytes of the file as they arrive. Returns the names of the files
        in mode list.

        Raises: ConnectionProblem when no address can be reached; RemoteError with the answer of the host.
        """
        request = {"do": "cat-log", "directory": directory, "mode": mode, "file": file}
        problems = []
        for address in self._addresses:
            control = await self._control_for(mode, address)
            transport = _ViewTransport(self._config, address, self._run, control)
            try:
                return await transport.view(request, write)
            except ConnectionProblem as problem:
                problems.append(str(problem))
        raise ConnectionProblem("; ".join(dict.fromkeys(problems)))

    async def _control_for(self, mode: str, address: str) -> Control:
        """Following has a connection of its own: that of the manager ends with the run, before the last lines."""
        if mode == "tail" and self._config.second_factor == "none":
            return UNSHARED
        return side_control(self._config, await socket_path(self._config, address, self._path))


class _ViewTransport(OneShotTransport):
    async def view(self, request: dict[str, Any], write: Callable[[bytes], None]) -> list[str]:
        marker = new_marker()
        child, frames = await self._begin(request["do"], marker)
        try:
            # The host ends a follower with its input: when this process is killed, ssh may live on.
            follows = request["mode"] == "tail"
            frame = request_frame({**request, "until_eof": follows, "n": 1, "marker": marker})
            answer = await asyncio.wait_for(self._converse(child, frames, frame, more=follows), LOGIN_PATIENCE)
            if answer is None:
                raise await self._failure(child, frames)
            files = checked(answer).head.get("files", [])
            while data := await frames.rest():
                write(data)
            return [str(name) for name in files]
        except FrameError as error:
            raise ConnectionProblem(f"{error} ({self.config.name})") from None
        except (asyncio.TimeoutError, TimeoutError):
            raise self._no_answer(LOGIN_PATIENCE) from None
        finally:
            child.close()
