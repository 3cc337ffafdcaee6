"""Opens the interfaces that the options of a manager ask for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from qcg.pilotjob.common.options import Options, UsageError
from qcg.pilotjob.interfaces.dispatch import answer
from qcg.pilotjob.interfaces.file import (
    check_unchanged,
    forget_file,
    is_file_done,
    read_requests,
    remember_file,
    run_requests,
)
from qcg.pilotjob.interfaces.network import NetworkInterface
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.manager.manager import Manager
from qcg.pilotjob.manager.ports import FileProgress, Interfaces, RequestFile
from qcg.pilotjob.wire.hub import Hub


class FileInterface(RequestFile):
    """The requests of one file, or none."""

    def __init__(self, path: str | None, requests: list[msgspec.Raw]) -> None:
        self._path = path
        self._requests = requests

    @property
    def is_empty(self) -> bool:
        return not self._requests

    async def carry_out(self, manager: Manager) -> FileProgress:
        if self._requests and self._path:
            remember_file(manager.engine.journal, Path(self._path))
        return await run_requests(manager, self._requests)


class InterfaceFactory(Interfaces):
    def read_file(self, options: Options) -> RequestFile:
        requests = read_requests(Path(options.file_path)) if options.file_path else []
        return FileInterface(options.file_path, requests)

    def read_file_again(self, options: Options, before: Options, journal: Journal, *, given_again: bool) -> RequestFile:
        if options.file_path != before.file_path:
            forget_file(journal)
        elif options.file_path and (given_again or not is_file_done(journal)):
            check_unchanged(journal, Path(options.file_path))
        return FileInterface(options.file_path, []) if is_file_done(journal) else self.read_file(options)

    def open_network(self, hub: Hub, options: Options, host: str) -> NetworkInterface | None:
        return NetworkInterface(hub, options, host) if options.net else None

    async def rerun(
        self, manager: Manager, states: Sequence[str], replacements: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        request = {"request": "rerunJob", "states": states, "jobs": replacements}
        reply = (await answer(manager, msgspec.json.encode(request), "--from")).to_dict()
        if reply["code"]:
            raise UsageError(reply["message"])
        data: dict[str, Any] = reply["data"]
        return data
