"""Log files of jobs on remote hosts, for commands: finds the host and the directory of a job, and shows its files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.common.terminal_output import ProgramOutput
from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError, find_host, load_hosts
from qcg.pilotjob.executors.ssh.errors import ConnectionProblem
from qcg.pilotjob.executors.ssh.log_viewer import LogViewer
from qcg.pilotjob.executors.ssh.transport import RemoteError
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.journal.journal import FILE_NAME
from qcg.pilotjob.journal.metadata import INSTANCE, OPTIONS
from qcg.pilotjob.journal.snapshot import snapshot
from qcg.pilotjob.launch.output import safe_name
from qcg.pilotjob.launch.remote import LAST_ATTEMPT
from qcg.pilotjob.runs.rundir import PREFIX


class RemoteLogs:
    """The log files of the remote jobs of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        try:
            with snapshot(run_dir / FILE_NAME, whole=False) as connection:
                options = OPTIONS.read(connection)
                self._instance = INSTANCE.read(connection) or ""
            self._hosts = load_hosts(None if options is None else options.hosts, os.environ)
        except (JournalError, OSError, HostsError) as error:
            raise Denial(str(error)) from None

    def show(
        self, name: str, entry: dict[str, Any], mode: str, file: str, *, lines: int | None = None, raw: bool = False
    ) -> list[str]:
        """Show a file of the last attempt of a job, by its entry of `jobInfo`. Returns the files in mode list.

        `lines`: only the last lines, except of a file that is followed."""
        config = self._host_of(name, entry)
        viewer = LogViewer(config, self._run_dir, self._run_dir.name.removeprefix(PREFIX), self._instance[:8])
        try:
            with ProgramOutput(raw=raw) as output:
                last = bytearray()

                def write(data: bytes) -> None:
                    if lines is None or mode == "tail":
                        output.write(data)
                        output.flush()
                    else:
                        last.extend(data)
                        last[:] = last_lines(bytes(last), lines)

                files = asyncio.run(viewer.view(attempt_directory(name), mode, file, write))
                output.write(bytes(last))
                return files
        except (ConnectionProblem, RemoteError) as problem:
            raise Denial(str(problem).rstrip(".")) from None

    def _host_of(self, name: str, entry: dict[str, Any]) -> HostConfig:
        info = entry["data"]
        remote = info.get("remote")
        if remote is None:
            raise Denial(f"job {name!r} runs on no remote host; see: qcg-pm logs {name}")
        if "iterations" in info:
            first = info["iterations"]["start"]
            raise Denial(f"job {name!r} has iterations, each with its own files; name one of them: {name}:{first}")
        allocation = info.get("runtime", {}).get("allocation", "")
        host = allocation.partition("[")[0]
        if not host:
            raise Denial(f"job {name!r} is {info['status']} and has written nothing; see: qcg-pm why {name}")
        try:
            return find_host(self._hosts, host)
        except HostsError as error:
            raise Denial(str(error)) from None


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines, with their ends."""
    return b"".join(data.splitlines(keepends=True)[-count:]) if count else b""


def attempt_directory(name: str) -> str:
    """The directory of the last attempt of a job or iteration, below `log/job`."""
    job, _, index = name.partition(":")
    return f"{index or '1'}/{safe_name(job)}/{LAST_ATTEMPT}"
