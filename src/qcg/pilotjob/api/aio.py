"""The same manager for programs with an event loop: every call is awaited, nothing blocks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from qcg.pilotjob.api.client import Manager, Names
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.manager import LocalManager

P = ParamSpec("P")
R = TypeVar("R")

MOST_CALLS = 64
"""Calls that can be under way at once; more wait for their turn."""


class AsyncManager:
    """`async with AsyncManager() as manager: await manager.wait4(await manager.submit(jobs))`.

    Calls run beside each other: one task may wait for jobs while another submits. With `local=True` a service of
    one's own is started, with `server_args` as its options.
    """

    def __init__(
        self,
        address: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        *,
        local: bool = False,
        server_args: list[Any] | None = None,
    ) -> None:
        self._make: Callable[[], Manager] = (
            functools.partial(LocalManager, server_args, cfg) if local else functools.partial(Manager, address, cfg)
        )
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="qcg-pm")
        self._manager: Manager | None = None

    async def __aenter__(self) -> AsyncManager:
        self._manager = await self._call(self._make)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._call(self.manager.cleanup)
        self._threads.shutdown()

    @property
    def manager(self) -> Manager:
        """The manager behind it."""
        if self._manager is None:
            raise RuntimeError("use AsyncManager in an `async with` block")
        return self._manager

    async def submit(self, jobs: Jobs) -> list[str]:
        return await self._call(self.manager.submit, jobs)

    async def list(self, names: Names | None = None) -> dict[str, Any]:
        return await self._call(self.manager.list, names)

    async def status(self, names: Names) -> dict[str, Any]:
        return await self._call(self.manager.status, names)

    async def info(self, names: Names, **params: Any) -> dict[str, Any]:
        return await self._call(self.manager.info, names, **params)

    async def info_parsed(self, names: Names, **params: Any) -> dict[str, JobInfo]:
        return await self._call(self.manager.info_parsed, names, **params)

    async def cancel(self, names: Names) -> dict[str, Any]:
        return await self._call(self.manager.cancel, names)

    async def remove(self, names: Names) -> dict[str, Any]:
        return await self._call(self.manager.remove, names)

    async def wait4(self, names: Names, timeout: float | None = None) -> dict[str, str]:
        return await self._call(self.manager.wait4, names, timeout)

    async def wait4all(self, timeout_secs: float | None = None) -> None:
        await self._call(self.manager.wait4all, timeout_secs)

    async def wait4_any_job_finish(self, timeout_secs: float | None = None) -> tuple[str, str]:
        return await self._call(self.manager.wait4_any_job_finish, timeout_secs)

    async def resources(self) -> dict[str, Any]:
        return await self._call(self.manager.resources)

    async def system_status(self) -> dict[str, Any]:
        return await self._call(self.manager.system_status)

    async def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._call(self.manager.send_request, request)

    async def finish(self) -> None:
        await self._call(self.manager.finish)

    async def _call(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(function, *arguments, **named))
