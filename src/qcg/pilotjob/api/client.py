"""The blocking client of a manager."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qcg.pilotjob.api.client_helpers import (
    Limit,
    Names,
    check_accepted,
    drain_request,
    finish_request,
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
from qcg.pilotjob.api.config import Config, read_config
from qcg.pilotjob.api.connection import NoAnswer, encode_request, no_answer
from qcg.pilotjob.api.connection_pool import ConnectionPool
from qcg.pilotjob.api.end_stream import POSITION_REQUEST, EndStream
from qcg.pilotjob.api.errors import (
    ConnectionError,
    RequestRefusedError,
    ServiceError,
    TimeoutElapsed,
    WrongArgumentsError,
)
from qcg.pilotjob.api.events import Events
from qcg.pilotjob.api.log import LogFile, log
from qcg.pilotjob.api.notebook import NotebookDisplay
from qcg.pilotjob.api.queries import Queries
from qcg.pilotjob.api.target import DEFAULT_PORT, Target, find_target, live_run
from qcg.pilotjob.api.wait_progress import JobProgress, RunProgress, WaitProgress
from qcg.pilotjob.api.waits import FINAL, Wait, WaitForAll, WaitForAny, WaitForJobs
from qcg.pilotjob.common.environment import JOB_ADDRESS
from qcg.pilotjob.report.run_summary import RunSummary

if TYPE_CHECKING:
    from qcg.pilotjob.api.job import Jobs

RECONNECT_PAUSE = 0.25
NEARLY_OVER, LAST_WORD = 1.0, 5.0
"""Seconds before the end of a wait within which the last request is sent, and seconds that it may take."""
SHORT_PATIENCE = 5.0
"""Seconds that the manager has to answer requests of displays."""
DELAYED_PAUSE = 1.0
"""Seconds between requests while the manager cannot write to its registry."""
NONE_LEFT = "every job has ended, so there is no next one to wait for; submit jobs first, or wait for jobs by name"
Self = TypeVar("Self", bound="Manager")


class Manager(Queries, NotebookDisplay):
    """The client of a live manager. All methods may be called from any thread; none waits for ever for a manager that
    is gone."""

    # Programs for earlier versions read these.
    DEFAULT_ADDRESS_ENV = JOB_ADDRESS
    DEFAULT_PROTO = "tcp"
    DEFAULT_PORT = str(DEFAULT_PORT)
    DEFAULT_ADDRESS = f"tcp://127.0.0.1:{DEFAULT_PORT}"
    DEFAULT_POLL_DELAY = Config().poll_delay
    DEFAULT_PUB_TIMEOUT = Config().pub_timeout

    def __init__(
        self,
        address: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        *,
        target: Target | None = None,
        own: bool = False,
        ends: bool = True,
    ) -> None:
        """Connect to the manager at an address. Without an address: to the manager that environment variables name, or
        to the live manager of a run in this directory.

        `target`: the manager, where it has been looked up already. `own`: the manager was started for this object,
        which returns the ends of its jobs from the first one on. `ends`: remember which jobs have ended until now, for
        `wait4_any_job_finish`; without it, nothing is sent before the first request.
        """
        found = find_target(address, os.environ) if target is None else target
        self._config = read_config(cfg)
        self._log_file = LogFile(self._config.wdir, self._config.log_file, self._config.log_level)
        self._pool = ConnectionPool(found)
        if not ends:
            self._ends = EndStream(0)
            return
        try:
            position = reply_data(POSITION_REQUEST, check_accepted(self._send_once(encode_request(POSITION_REQUEST))))
            self._ends = EndStream(position["first" if own else "last"])
            log.info("connected to the manager at %s", found.contact.address)
        except BaseException:
            self._disconnect()
            raise

    @classmethod
    def of_run(cls, run_dir: str | os.PathLike[str], cfg: Mapping[str, Any] | None = None) -> Manager:
        """Connect to the live manager of a run directory, or of the newest run in a working directory."""
        return cls.at(live_run(Path(run_dir)), cfg)

    @classmethod
    def at(cls, target: Target, cfg: Mapping[str, Any] | None = None, *, ends: bool = True) -> Manager:
        """Connect to a manager that has been looked up already. `ends`: as in the constructor."""
        return cls(cfg=cfg, target=target, ends=ends)

    @property
    def has_answered(self) -> bool:
        """Whether the manager has answered any request of this object."""
        return self._pool.answered

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Jobs) -> list[str]:
        """Submit a group of jobs, all or none; returns their names when they are on the manager's disk."""
        # Imported late: programs that submit nothing start faster without the rules for descriptions.
        from qcg.pilotjob.api.job import Jobs

        if not isinstance(jobs, Jobs):
            raise WrongArgumentsError(f"submit wants a Jobs object, not {type(jobs).__name__}")
        return submitted_names(self._data({"request": "submit", "jobs": jobs.ordered_jobs()}))

    def cancel(self, names: Names) -> dict[str, Any]:
        """Cancel waiting and running jobs and iterations; returns their number, and errors for the others. Of jobs on
        remote hosts that do not answer, `unreachable` has the names by host: the hosts get the order later."""
        return self._data({"request": "cancelJob", "jobNames": name_list(names)})

    def hold(self, names: Names) -> dict[str, Any]:
        """Hold waiting jobs and iterations: they are not started until they are released. Returns their number, and
        errors for the others."""
        return self._data({"request": "holdJob", "jobNames": name_list(names)})

    def release(self, names: Names) -> dict[str, Any]:
        """Release held jobs and iterations; returns their number, and errors for the others."""
        return self._data({"request": "releaseJob", "jobNames": name_list(names)})

    def set(self, names: Names, **changes: Any) -> dict[str, Any]:
        """Change the requests of waiting jobs: `priority`, `numCores`, `numNodes`, `nodeCrs`, `mem`, `wt`. Returns
        their number, and errors for the others."""
        return self._data({"request": "setJob", "jobNames": name_list(names), **changes})

    def remove(self, names: Names) -> dict[str, Any]:
        """Remove final jobs from the registry; returns their number, and errors for the others."""
        return self._data({"request": "removeJob", "jobNames": name_list(names)})

    def rerun(
        self,
        names: Names | None = None,
        states: Names | None = None,
        jobs: Jobs | None = None,
        *,
        reread: bool = False,
    ) -> dict[str, Any]:
        """Run jobs again that have ended without success, and their omitted dependents.

        `names`: jobs and iterations; all by default. `states`: only jobs and iterations that are FAILED, CANCELED or
        OMITTED. `jobs`: new descriptions for some of the jobs. `reread`: use the rows that their parameter files have
        now. Returns the number of jobs and iterations, the names of
        the jobs, and errors."""
        return self._data(rerun_request(names, states, jobs, reread=reread))

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait4(
        self, names: Names, timeout: float | None = None, *, timeout_secs: float | None = None, progress: bool = False
    ) -> dict[str, str]:
        """Wait until these jobs and iterations are final; returns their states. Both names of the timeout mean the
        same, here and below. `progress`: show a bar, in a notebook or on a terminal."""
        wanted = name_list(names)
        wait = WaitForJobs(wanted)
        with self._shown(JobProgress(wait, wanted), progress):
            self._wait(wait, time_limit(timeout, timeout_secs))
        return wait.states

    def wait4all(
        self, timeout_secs: float | None = None, *, timeout: float | None = None, progress: bool = False
    ) -> None:
        """Wait until every job of the manager has ended. `progress`: show a bar, in a notebook or on a terminal."""
        with self._shown(RunProgress(), progress):
            self._wait(WaitForAll(), time_limit(timeout, timeout_secs))

    def wait4_any_job_finish(
        self, timeout_secs: float | None = None, *, timeout: float | None = None
    ) -> tuple[str, str]:
        """Return the name and state of the next job that ends, of any client; waits for it.

        Each end since this object was made is returned once, in the order of the ends, whether it happened before the
        call or during it. `ServiceError` when all ends were returned and no job is left that could end."""
        limit = time_limit(timeout, timeout_secs)
        while True:
            ended = self._ends.pop()
            if ended is not None:
                return ended
            # Repeated where other threads wait too: each end is returned to one thread.
            self._wait(WaitForAny(self._ends), limit)

    def as_completed(
        self, names: Names, timeout: float | None = None, *, timeout_secs: float | None = None
    ) -> Iterator[tuple[str, str]]:
        """An iterator that yields the name and the final state of each of these jobs and iterations: first of jobs that
        have already ended, then of each other job as it ends. Raises `TimeoutElapsed` when not all of them have ended
        `timeout` seconds after the call."""
        ended: deque[tuple[str, str]] = deque()
        wait = WaitForJobs(name_list(names), ended.append)
        progress = self._progress(wait, time_limit(timeout, timeout_secs))
        return (end for _ in progress for end in _drain(ended))

    @property
    def poll_delay(self) -> float:
        """Seconds between requests while no event arrives."""
        return self._config.poll_delay

    def listen(self, *topics: str) -> Events:
        """Subscribe to events of these topics, for one thread: `with manager.listen("JFI") as events: …`."""
        return self._pool.listen(topics)

    @staticmethod
    def is_status_finished(status: str) -> bool:
        return status in FINAL

    # -- the manager ------------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path | None:
        """The run directory of the manager, where it is known."""
        return self._pool.target.run_dir

    def resources(self) -> dict[str, Any]:
        """The numbers of nodes and of total, used and free cores."""
        return self._data({"request": "resourcesInfo"})

    def hosts(self) -> dict[str, Any]:
        """The remote hosts of the run by name, each with its `state`: `connected`, `connecting`, `unused` or
        `unreachable`, then also with `since` and `error`."""
        found: dict[str, Any] = self._data({"request": "hosts"})["hosts"]
        return found

    def connect_host(self, host: str) -> None:
        """Try to reach a remote host again now, for example after a person has opened a connection to it."""
        self.send_request({"request": "connectHost", "host": host})

    def forget_host(self, host: str) -> int:
        """Give up an unreachable remote host: its running jobs count as lost. Returns their number."""
        lost: int = self._data({"request": "forgetHost", "host": host})["lost"]
        return lost

    def drain_nodes(self, names: Names, reason: str = "") -> str:
        """Start no more jobs on these nodes; jobs that run there continue. Returns a sentence about the result."""
        return message_of(self.send_request(drain_request(names, reason)))

    def resume_nodes(self, names: Names) -> str:
        """Start jobs on drained nodes again. Returns a sentence about the result."""
        return message_of(self.send_request(resume_nodes_request(names)))

    def poll(self, names: Names = (), host: str | None = None) -> dict[str, Any]:
        """Poll the remote hosts of these jobs now, or one host, or all; returns the states of the jobs, as `status`
        does."""
        return self._data(poll_request(names, host))

    def system_status(self) -> dict[str, Any]:
        """An overview: the manager, its resources, numbers of jobs and iterations by state."""
        return self._data({"request": "status"})

    def finish(self, cancel: bool = False) -> None:
        """End the manager now. Running jobs are killed and CANCELED. Waiting jobs stay QUEUED for a manager that
        resumes the run; with `cancel` they are CANCELED, too."""
        self.send_request(finish_request(cancel=cancel))

    def cleanup(self) -> None:
        """Close all connections. The manager continues."""
        self._disconnect()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cleanup()

    def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send any request, as in a request file; returns the whole answer."""
        body = encode_request(request)
        log_request(request)
        while True:
            try:
                return check_accepted(self._send_once(body))
            except RequestRefusedError:  # the manager is there: reconnecting does not help
                raise
            except ConnectionError as error:
                if self._pool.closed or not self._config.reconnect or not may_repeat(request, error):
                    raise
                self._reconnect(math.inf)

    def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        return reply_data(request, self.send_request(request))

    # -- requests and waits -----------------------------------------------------------------------------------------

    def _send_once(self, body: bytes) -> dict[str, Any]:
        timeout = self._config.request_timeout
        try:
            return self._pool.ask(body, timeout)
        except NoAnswer:
            raise no_answer(self._pool.target.contact.address, timeout) from None

    def _data_soon(self, request: dict[str, Any], patience: float = SHORT_PATIENCE) -> dict[str, Any]:
        """The data of the answer to a request for a display, which does not reconnect or wait for long."""
        try:
            return reply_data(request, check_accepted(self._pool.ask(encode_request(request), patience)))
        except NoAnswer:
            raise no_answer(self._pool.target.contact.address, patience) from None

    def _summary_soon(self, patience: float) -> RunSummary:
        return to_summary(self._data_soon({"request": "summary"}, patience))

    def _shown(self, progress: WaitProgress, wanted: bool) -> AbstractContextManager[None]:
        if not wanted:
            return nullcontext()
        from qcg.pilotjob.api.progress_bar import shown  # late: most programs show no bar

        return shown(progress, self._data_soon)

    def _disconnect(self) -> None:
        self._pool.close()
        self._log_file.close()

    def _wait(self, wait: Wait, limit: Limit) -> None:
        for _ in self._progress(wait, limit):
            pass

    def _progress(self, wait: Wait, limit: Limit) -> Iterator[None]:
        """Follow a wait until it is over; yields after each step."""
        while True:
            try:
                with self._pool.explained():
                    yield from self._follow(wait, limit.deadline)
                return
            except RequestRefusedError:  # the manager is there: reconnecting does not help
                raise
            except ConnectionError:
                if self._pool.closed or not self._config.reconnect:
                    raise
                self._reconnect(limit.deadline)
                wait.ask_again()
            except _Late:
                raise TimeoutElapsed(f"after {limit.seconds:g} s, {wait.left()}") from None

    def _follow(self, wait: Wait, deadline: float) -> Iterator[None]:
        """Process events, and query the state when events may have been missed, and when none arrives."""
        if not self._pool.target.contact.publisher:
            yield from self._poll(wait, deadline)
            return
        if wait.asks_first:
            self._ask(wait, deadline)
            if wait.over:
                return
            wait.ask_again()
        with self.listen(*wait.topics) as events:
            certain = time.monotonic() + self._config.poll_delay
            in_silence = False
            while True:
                if events.take_missed() or in_silence or (events.complete and wait.must_ask):
                    self._ask(wait, deadline)
                    certain = time.monotonic() + self._config.poll_delay
                yield
                if wait.over:
                    return
                if time.monotonic() >= deadline:
                    yield from self._last_word(wait, deadline)
                    return
                heard = events.wait(0.0 if wait.delayed else self._pause(deadline))
                for topic, data in events.take() if heard else ():
                    wait.event(topic, data)
                in_silence = time.monotonic() < deadline and (
                    not heard or (not events.complete and time.monotonic() >= certain)
                )

    def _last_word(self, wait: Wait, deadline: float) -> Iterator[None]:
        """Query once more after the deadline, so that a timeout of 0 works as a query."""
        if wait.must_ask:
            self._ask(wait, deadline)
            yield
        if not wait.over:
            raise _Late

    def _poll(self, wait: Wait, deadline: float) -> Iterator[None]:
        while True:
            self._ask(wait, deadline)
            yield
            if wait.over:
                return
            if time.monotonic() >= deadline:
                raise _Late
            time.sleep(self._pause(deadline))

    def _ask(self, wait: Wait, deadline: float) -> None:
        question = wait.question()
        left = deadline - time.monotonic()
        patience = LAST_WORD if left < NEARLY_OVER else left
        try:
            if patience < self._config.request_timeout:
                answer = self._pool.ask(encode_request(question), patience)
            else:
                answer = self._send_once(encode_request(question))
        except NoAnswer:
            raise _Late from None
        except BaseException:
            wait.ask_again()
            raise
        sentence = wait.answer(reply_data(question, check_accepted(answer)))
        if sentence is not None:
            raise RequestRefusedError(sentence)
        if wait.no_more_ends:
            raise ServiceError(NONE_LEFT)
        if wait.delayed:
            time.sleep(max(min(DELAYED_PAUSE, deadline - time.monotonic()), 0.0))
            wait.ask_again()

    def _pause(self, deadline: float) -> float:
        return max(min(self._config.poll_delay, deadline - time.monotonic()), 0.0)

    def _reconnect(self, deadline: float) -> None:
        """Wait until the manager answers again, perhaps at another address and with other keys."""
        log.warning("the manager is gone; trying to reconnect for %g s", self._config.reconnect)
        limit = time.monotonic() + self._config.reconnect
        while True:
            self._pool.refresh_target()
            patience = min(self._config.request_timeout, max(min(limit, deadline) - time.monotonic(), LAST_WORD))
            try:
                self._pool.ask(encode_request({"request": "status"}), patience)
                return
            except (ConnectionError, NoAnswer) as error:
                if time.monotonic() >= deadline:
                    raise TimeoutElapsed("the manager was gone, and did not come back in time") from None
                if self._pool.closed or time.monotonic() >= limit:
                    if isinstance(error, NoAnswer):
                        raise no_answer(self._pool.target.contact.address, patience) from None
                    raise
                time.sleep(RECONNECT_PAUSE)


def _drain(ended: deque[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    while ended:
        yield ended.popleft()


class _Late(Exception):
    """The deadline of a wait has passed."""
