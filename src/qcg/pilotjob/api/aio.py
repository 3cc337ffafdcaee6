"""The asyncio client of a manager: every call is awaited, and no call blocks the event loop."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from qcg.pilotjob.api.async_connection import AsyncEvents, AsyncRequests, Context
from qcg.pilotjob.api.client import DELAYED_PAUSE, LAST_WORD, NONE_LEFT, RECONNECT_PAUSE
from qcg.pilotjob.api.client_helpers import (
    Limit,
    Names,
    check_accepted,
    drain_request,
    finish_request,
    list_request,
    log_request,
    may_repeat,
    message_of,
    name_list,
    poll_request,
    reply_data,
    rerun_request,
    resume_nodes_request,
    submitted_names,
    time_limit,
    to_summary,
)
from qcg.pilotjob.api.config import read_config
from qcg.pilotjob.api.connection import NoAnswer, encode_request, make_context, no_answer
from qcg.pilotjob.api.end_stream import POSITION_REQUEST, EndStream
from qcg.pilotjob.api.errors import (
    ConnectionError,
    RequestRefusedError,
    ServiceError,
    TimeoutElapsed,
    WrongArgumentsError,
)
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.local_process import ManagerProcess
from qcg.pilotjob.api.log import LogFile, log
from qcg.pilotjob.api.target import Target, find_target, target_of_run
from qcg.pilotjob.api.wait_progress import JobProgress, RunProgress, WaitProgress
from qcg.pilotjob.api.waits import Wait, WaitForAll, WaitForAny, WaitForJobs
from qcg.pilotjob.report.run_summary import RunSummary

_CLOSED = "this manager object was left and cannot be used any more"


class AsyncManager:
    """`async with AsyncManager() as manager: await manager.wait4(await manager.submit(jobs))`.

    Calls run concurrently: one task may wait for jobs while another submits, and any number of tasks may wait.
    With `local=True` it starts a manager of its own, with the options `server_args`, which ends with the block.
    """

    def __init__(
        self,
        address: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        *,
        local: bool = False,
        server_args: Iterable[Any] | None = None,
    ) -> None:
        self._address = address
        self._config = read_config(cfg)
        self._local = local
        self._server_args = list(server_args or ())
        self._process: ManagerProcess | None = None
        self._target: Target | None = None
        self._requests: AsyncRequests | None = None
        self._events: dict[tuple[str, ...], AsyncEvents] = {}
        """Subscriptions by their topics."""
        self._looking = asyncio.Lock()
        self._context: Context | None = None
        self._log_file: LogFile | None = None
        self._left = False
        self._ends = EndStream(0)

    async def __aenter__(self) -> AsyncManager:
        self._left = False
        try:
            if self._local:
                self._process = await self._start_process()
            self._log_file = LogFile(self._config.wdir, self._config.log_file, self._config.log_level)
            self._context = make_context()
            own = self._process
            self._target = target_of_run(own.run_dir) if own else find_target(self._address, os.environ)
            answer = await self._send_once(encode_request(POSITION_REQUEST))
            position = reply_data(POSITION_REQUEST, check_accepted(answer))
            self._ends = EndStream(position["first" if self._local else "last"])
            log.info("connected to the manager at %s", self._target.contact.address)
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        # An interrupted or failed program does not cancel its jobs: they are requeued.
        await self._leave(finish=kind is None)

    # -- jobs -------------------------------------------------------------------------------------------------------

    async def submit(self, jobs: Jobs) -> list[str]:
        if not isinstance(jobs, Jobs):
            raise WrongArgumentsError(f"submit wants a Jobs object, not {type(jobs).__name__}")
        return submitted_names(await self._data({"request": "submit", "jobs": jobs.ordered_jobs()}))

    async def list(self, names: Names | None = None) -> dict[str, Any]:
        jobs: dict[str, Any] = (await self._data({"request": "listJobs"}))["jobs"]
        return jobs if names is None else {name: jobs[name] for name in name_list(names) if name in jobs}

    async def list_page(
        self,
        after: str | None = None,
        limit: int | None = 1000,
        *,
        states: Names | None = None,
        pattern: Names | None = None,
    ) -> dict[str, Any]:
        return await self._data(list_request(after, limit, states, pattern))

    async def status(self, names: Names) -> dict[str, Any]:
        return await self._data({"request": "jobStatus", "jobNames": name_list(names)})

    async def info(self, names: Names, **params: Any) -> dict[str, Any]:
        return await self._data({"request": "jobInfo", "jobNames": name_list(names), "params": params})

    async def info_parsed(self, names: Names, **params: Any) -> dict[str, JobInfo]:
        jobs = (await self.info(names, **params))["jobs"]
        return {name: JobInfo.from_job(entry["data"]) for name, entry in jobs.items() if entry["status"] == 0}

    async def cancel(self, names: Names) -> dict[str, Any]:
        return await self._data({"request": "cancelJob", "jobNames": name_list(names)})

    async def hold(self, names: Names) -> dict[str, Any]:
        """Hold waiting jobs and iterations: they are not started until they are released. Returns their number, and
        errors for the others."""
        return await self._data({"request": "holdJob", "jobNames": name_list(names)})

    async def release(self, names: Names) -> dict[str, Any]:
        """Release held jobs and iterations; returns their number, and errors for the others."""
        return await self._data({"request": "releaseJob", "jobNames": name_list(names)})

    async def set(self, names: Names, **changes: Any) -> dict[str, Any]:
        """Change the requests of waiting jobs: `priority`, `numCores`, `numNodes`, `nodeCrs`, `mem`, `wt`. Returns
        their number, and errors for the others."""
        return await self._data({"request": "setJob", "jobNames": name_list(names), **changes})

    async def remove(self, names: Names) -> dict[str, Any]:
        return await self._data({"request": "removeJob", "jobNames": name_list(names)})

    async def rerun(
        self,
        names: Names | None = None,
        states: Names | None = None,
        jobs: Jobs | None = None,
        *,
        reread: bool = False,
    ) -> dict[str, Any]:
        return await self._data(rerun_request(names, states, jobs, reread=reread))

    async def why(self, names: Names) -> dict[str, Any]:
        return await self._data({"request": "why", "jobNames": name_list(names)})

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def wait4(
        self, names: Names, timeout: float | None = None, *, timeout_secs: float | None = None, progress: bool = False
    ) -> dict[str, str]:
        wanted = name_list(names)
        wait = WaitForJobs(wanted)
        async with self._shown(JobProgress(wait, wanted), progress):
            await self._wait(wait, time_limit(timeout, timeout_secs))
        return wait.states

    async def wait4all(
        self, timeout_secs: float | None = None, *, timeout: float | None = None, progress: bool = False
    ) -> None:
        async with self._shown(RunProgress(), progress):
            await self._wait(WaitForAll(), time_limit(timeout, timeout_secs))

    async def wait4_any_job_finish(
        self, timeout_secs: float | None = None, *, timeout: float | None = None
    ) -> tuple[str, str]:
        limit = time_limit(timeout, timeout_secs)
        while True:
            ended = self._ends.pop()
            if ended is not None:
                return ended
            # Repeated where other tasks wait too: each end is returned to one task.
            await self._wait(WaitForAny(self._ends), limit)

    def as_completed(
        self, names: Names, timeout: float | None = None, *, timeout_secs: float | None = None
    ) -> AsyncIterator[tuple[str, str]]:
        """`async for name, state in manager.as_completed(names)`: in the order of their ends."""
        return self._as_completed(name_list(names), time_limit(timeout, timeout_secs))

    async def _as_completed(self, names: Iterable[str], limit: Limit) -> AsyncIterator[tuple[str, str]]:
        ended: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        wait = WaitForJobs(names, ended.put_nowait)
        waiting = asyncio.ensure_future(self._wait(wait, limit))
        waiting.add_done_callback(lambda done: ended.put_nowait(None))
        try:
            while (end := await ended.get()) is not None:
                yield end
            await waiting
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    # -- the manager ------------------------------------------------------------------------------------------------

    async def resources(self) -> dict[str, Any]:
        return await self._data({"request": "resourcesInfo"})

    async def hosts(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self._data({"request": "hosts"}))["hosts"]
        return found

    async def connect_host(self, host: str) -> None:
        await self.send_request({"request": "connectHost", "host": host})

    async def forget_host(self, host: str) -> int:
        lost: int = (await self._data({"request": "forgetHost", "host": host}))["lost"]
        return lost

    async def drain_nodes(self, names: Names, reason: str = "") -> str:
        return message_of(await self.send_request(drain_request(names, reason)))

    async def resume_nodes(self, names: Names) -> str:
        return message_of(await self.send_request(resume_nodes_request(names)))

    async def poll(self, names: Names = (), host: str | None = None) -> dict[str, Any]:
        return await self._data(poll_request(names, host))

    async def system_status(self) -> dict[str, Any]:
        return await self._data({"request": "status"})

    async def summary(self) -> RunSummary:
        return to_summary(await self._data({"request": "summary"}))

    async def finish(self, cancel: bool = False) -> None:
        """End the manager now, and wait for its end if it is one's own. Waiting jobs stay QUEUED, unless `cancel` is
        given."""
        await self.send_request(finish_request(cancel=cancel))
        if self._process is not None:
            await asyncio.to_thread(self._process.end)

    async def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        body = encode_request(request)
        log_request(request)
        while True:
            try:
                return check_accepted(await self._send_once(body))
            except RequestRefusedError:  # the manager is there: reconnecting does not help
                raise
            except ConnectionError as error:
                if self._target is None or not self._config.reconnect or not may_repeat(request, error):
                    raise
                await self._reconnect()

    async def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        return reply_data(request, await self.send_request(request))

    # -- connections ------------------------------------------------------------------------------------------------

    @property
    def _found(self) -> Target:
        if self._target is None:
            raise ConnectionError(_CLOSED if self._left else "use AsyncManager in an `async with` block")
        return self._target

    async def _start_process(self) -> ManagerProcess:
        """Start a manager in a thread, because that blocks. When the start is cancelled, the manager is ended."""
        starting = asyncio.ensure_future(
            asyncio.to_thread(ManagerProcess, self._server_args, self._config.init_timeout)
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            process = await starting
            process.terminate()
            await asyncio.to_thread(process.end)
            raise

    async def _leave(self, *, finish: bool = True) -> None:
        """Close everything. `finish`: end a manager of one's own as `finish` does; otherwise its jobs are requeued."""
        self._target = None
        self._left = True
        if self._requests is not None:
            self._requests.close(ConnectionError(_CLOSED))
        for events in self._events.values():
            events.close(ConnectionError(_CLOSED))
        if self._context is not None:
            self._context.term()
        if self._process is not None:
            if finish:
                self._process.finish()
            await asyncio.to_thread(self._process.end)
        if self._log_file is not None:
            self._log_file.close()

    async def _send_once(self, body: bytes) -> dict[str, Any]:
        found, timeout = self._found.contact, self._config.request_timeout
        if self._requests is None or not self._requests.is_usable:
            self._drop_requests()
            assert self._context is not None
            self._requests = AsyncRequests(self._context, found)
        try:
            return await self._requests.ask(body, timeout)
        except NoAnswer:
            raise no_answer(found.address, timeout) from None

    def _drop_requests(self) -> None:
        if self._requests is not None:
            self._requests.close(ConnectionError("the connection to the manager was given up"))
            self._requests = None

    async def _wait(self, wait: Wait, limit: Limit) -> None:
        try:
            await asyncio.wait_for(self._follow_on(wait), None if limit.seconds == math.inf else limit.left)
        except asyncio.TimeoutError:
            # Query once more, so that a timeout of 0 works as a query.
            with suppress(asyncio.TimeoutError):
                if wait.must_ask:
                    await asyncio.wait_for(self._ask(wait), LAST_WORD)
            if not wait.over:
                raise TimeoutElapsed(f"after {limit.seconds:g} s, {wait.left()}") from None

    @asynccontextmanager
    async def _shown(self, progress: WaitProgress, wanted: bool) -> AsyncIterator[None]:
        """Show a progress bar meanwhile, where it is wanted and can be seen."""
        if not wanted:
            yield
            return
        from qcg.pilotjob.api.progress_bar import shown_async  # late: most programs show no bar

        async with shown_async(progress, self._data):
            yield

    async def _follow_on(self, wait: Wait) -> None:
        while True:
            try:
                if self._found.contact.publisher:
                    await self._follow(wait)
                else:
                    await self._poll(wait)
                return
            except RequestRefusedError:  # the manager is there: reconnecting does not help
                raise
            except ConnectionError:
                if self._target is None or not self._config.reconnect:
                    raise
                await self._reconnect()
                wait.ask_again()

    async def _follow(self, wait: Wait) -> None:
        if wait.asks_first:
            await self._ask(wait)
            if wait.over:
                return
            wait.ask_again()
        events = self._events.get(wait.topics)
        if events is None or not events.is_usable:
            assert self._context is not None
            events = self._events[wait.topics] = AsyncEvents(self._context, self._found.contact, wait.topics)
        try:
            with events.following(wait):
                await events.welcome(wait, self._config.poll_delay)
                while True:
                    if wait.must_ask:
                        await self._ask(wait)
                    if wait.over:
                        return
                    if not wait.delayed:
                        await events.next(wait, self._config.poll_delay)
        finally:
            if events.is_idle:
                events.close(ConnectionError(_CLOSED))
                if self._events.get(wait.topics) is events:
                    del self._events[wait.topics]

    async def _poll(self, wait: Wait) -> None:
        while True:
            await self._ask(wait)
            if wait.over:
                return
            await asyncio.sleep(self._config.poll_delay)

    async def _ask(self, wait: Wait) -> None:
        question = wait.question()
        try:
            answer = await self._send_once(encode_request(question))
        except BaseException:  # also when the task is cancelled
            wait.ask_again()
            raise
        sentence = wait.answer(reply_data(question, check_accepted(answer)))
        if sentence is not None:
            raise RequestRefusedError(sentence)
        if wait.no_more_ends:
            raise ServiceError(NONE_LEFT)
        if wait.delayed:
            await asyncio.sleep(DELAYED_PAUSE)
            wait.ask_again()

    async def _reconnect(self) -> None:
        """Wait until the manager answers again, perhaps at another address. One task reconnects for all."""
        async with self._looking:
            if self._requests is None or not self._requests.is_usable:  # no other task has reconnected
                log.warning("the manager is gone; trying to reconnect for %g s", self._config.reconnect)
            limit = time.monotonic() + self._config.reconnect
            while True:
                before, self._target = self._found, self._found.refreshed()
                if self._target != before:
                    self._drop_requests()
                try:
                    await self._send_once(encode_request({"request": "status"}))
                    return
                except ConnectionError:
                    if self._target is None or time.monotonic() >= limit:
                        raise
                    await asyncio.sleep(RECONNECT_PAUSE)
