"""A manager as a program sees it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import zmq

from qcg.pilotjob.api.asking import Names, accepted, data_of, list_of, may_ask_again
from qcg.pilotjob.api.config import LogFile, log, read_config
from qcg.pilotjob.api.errors import (
    ConnectionError,
    RequestRefusedError,
    ServiceError,
    TimeoutElapsed,
    WrongArgumentsError,
)
from qcg.pilotjob.api.events import Events
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.link import Requests, encode_request, make_context
from qcg.pilotjob.api.target import Target, find_target, target_of
from qcg.pilotjob.api.waiting import FINAL, Wait, WaitForAll, WaitForAny, WaitForJobs

if TYPE_CHECKING:
    from qcg.pilotjob.api.job import Jobs

RECONNECT_PAUSE = 0.25
Self = TypeVar("Self", bound="Manager")


class Manager:
    """Talks to a running manager. All methods may be called from any thread; none waits for ever for a service that
    is gone."""

    def __init__(self, address: str | None = None, cfg: Mapping[str, Any] | None = None) -> None:
        """The manager at an address, or, without one, the manager that runs this program as one of its jobs."""
        self._connect(find_target(address, os.environ), cfg)

    @classmethod
    def of_run(cls, run_dir: Path, cfg: Mapping[str, Any] | None = None) -> Manager:
        """The manager that is at work in a run directory."""
        manager = cls.__new__(cls)
        manager._connect(target_of(run_dir), cfg)
        return manager

    def _connect(self, target: Target, cfg: Mapping[str, Any] | None) -> None:
        self._config = read_config(cfg)
        self._log_file = LogFile(self._config)
        self._target = target
        self._context = make_context()
        self._idle: list[Requests] = []
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._ask_once(encode_request({"request": "status"}))
        except BaseException:
            self._disconnect()
            raise

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Jobs) -> list[str]:
        """Submit a group of jobs, all or none; their names. When this returns, they are on the manager's disk."""
        # Not needed by those who only ask: the rules for descriptions take as long to load as all the rest.
        from qcg.pilotjob.api.job import Jobs

        if not isinstance(jobs, Jobs):
            raise WrongArgumentsError(f"submit wants a Jobs object, not {type(jobs).__name__}")
        names: list[str] = self._data({"request": "submit", "jobs": jobs.ordered_jobs()})["jobs"]
        return names

    def list(self, names: Names | None = None) -> dict[str, Any]:
        """All jobs, or those of these names, with their states."""
        jobs: dict[str, Any] = self._data({"request": "listJobs"})["jobs"]
        return jobs if names is None else {name: jobs[name] for name in list_of(names) if name in jobs}

    def status(self, names: Names) -> dict[str, Any]:
        """The states of jobs and iterations, as the answer to `jobStatus` has them."""
        return self._data({"request": "jobStatus", "jobNames": list_of(names)})

    def info(self, names: Names, **params: Any) -> dict[str, Any]:
        """Everything about jobs; `withChilds=True` for each iteration too."""
        return self._data({"request": "jobInfo", "jobNames": list_of(names), "params": params})

    def info_parsed(self, names: Names, **params: Any) -> dict[str, JobInfo]:
        """The same as objects; names that are not there are left out."""
        jobs = self.info(names, **params)["jobs"]
        return {name: JobInfo.from_job(entry["data"]) for name, entry in jobs.items() if entry["status"] == 0}

    def cancel(self, names: Names) -> dict[str, Any]:
        """End jobs and iterations, waiting and running ones; how many, and why not the others."""
        return self._data({"request": "cancelJob", "jobNames": list_of(names)})

    def remove(self, names: Names) -> dict[str, Any]:
        """Forget jobs that have ended; how many, and why not the others."""
        return self._data({"request": "removeJob", "jobNames": list_of(names)})

    def why(self, names: Names) -> dict[str, Any]:
        """What jobs and iterations wait for, where they run or how they ended: each with a `sentence` for people, and a
        `reason` and figures for programs."""
        return self._data({"request": "why", "jobNames": list_of(names)})

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait4(self, names: Names, timeout: float | None = None) -> dict[str, str]:
        """Wait until all these jobs or iterations have ended; their final states."""
        wait = WaitForJobs(list_of(names))
        self._wait(wait, timeout)
        return wait.states

    def wait4all(self, timeout_secs: float | None = None) -> None:
        """Wait until every job of the manager has ended."""
        self._wait(WaitForAll(), timeout_secs)

    def wait4_any_job_finish(self, timeout_secs: float | None = None) -> tuple[str, str]:
        """Wait until the next job ends; its name and state."""
        if not self._target.contact.publisher:
            raise ServiceError("this service does not publish events, so there is no next job to wait for")
        wait = WaitForAny()
        self._wait(wait, timeout_secs)
        assert wait.ended is not None
        return wait.ended

    @property
    def poll_delay(self) -> float:
        """Seconds between questions where nothing is heard of the service."""
        return self._config.poll_delay

    def listen(self, *topics: str) -> Events:
        """What the service publishes on these topics, for one thread; to be closed after use."""
        with self._explained():
            return Events(self._context, self._target.contact, topics)

    @staticmethod
    def is_status_finished(status: str) -> bool:
        return status in FINAL

    # -- the service ------------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path | None:
        """The run directory of the service, where it is known."""
        return self._target.run_dir

    def resources(self) -> dict[str, Any]:
        """How many nodes and cores there are, and how many of them are in use."""
        return self._data({"request": "resourcesInfo"})

    def system_status(self) -> dict[str, Any]:
        """An overview: the service, its resources, numbers of jobs and iterations by state."""
        return self._data({"request": "status"})

    def finish(self) -> None:
        """End the service now; running jobs are ended with it."""
        self.send_request({"request": "finish"})

    def cleanup(self) -> None:
        """Give back connections. The service goes on."""
        self._disconnect()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cleanup()

    def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Any request, as in a request file; the whole answer."""
        log.debug("request %s", request.get("request"))
        body = encode_request(request)
        while True:
            try:
                return accepted(self._ask_once(body))
            except RequestRefusedError:  # looking for the service again is of no use
                raise
            except ConnectionError as error:
                if self._closed or not self._config.reconnect or not may_ask_again(request, error):
                    raise
                self._find_again(math.inf)

    def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        return data_of(request, self.send_request(request))

    # -- connections ------------------------------------------------------------------------------------------------

    def _ask_once(self, body: bytes) -> dict[str, Any]:
        with self._requests() as requests:
            return requests.ask(body, self._config.request_timeout)

    @contextmanager
    def _requests(self) -> Iterator[Requests]:
        """A line of one's own for one request. One on which something went wrong is not used again."""
        with self._explained():
            requests = self._idle_requests() or Requests(self._context, self._target.contact)
            try:
                yield requests
            except BaseException:
                requests.close()
                raise
            with self._lock:
                if not self._closed:
                    self._idle.append(requests)
                    return
            requests.close()

    def _idle_requests(self) -> Requests | None:
        """One that is still connected."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                requests = self._idle.pop()
            try:
                requests.line.check()
                return requests
            except ConnectionError:
                requests.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for requests in idle:
            requests.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What ZeroMQ says, in our words."""
        try:
            yield
        except zmq.ZMQError as error:
            reason = "this manager object was cleaned up and cannot be used any more"
            raise ConnectionError(reason if self._closed else f"no connection can be made: {error.strerror}") from None

    def _disconnect(self) -> None:
        """Calls under way in other threads end with a `ConnectionError`, and close what they have open."""
        with self._lock:
            self._closed = True
        self._drop_idle()
        self._context.term()
        self._log_file.close()

    def _wait(self, wait: Wait, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                with self._explained():
                    self._follow(wait, deadline)
                return
            except RequestRefusedError:  # looking for the service again is of no use
                raise
            except ConnectionError:
                if self._closed or not self._config.reconnect:
                    raise
                self._find_again(deadline)
                wait.ask_again = True

    def _follow(self, wait: Wait, deadline: float) -> None:
        """Listen to events, and ask where they do not tell. Asking begins only when no event can be missed."""
        found = self._target.contact
        if not found.publisher:
            self._poll(wait, deadline)
            return
        with closing(self.listen(*wait.topics)) as events:
            while True:
                if events.missed or (events.complete and wait.ask_again):
                    events.missed = False
                    self._ask(wait)
                if wait.over or self._is_over_in_time(wait, deadline):
                    return
                if events.wait(self._pause(deadline)):
                    for topic, data in events.take():
                        wait.event(topic, data)
                elif time.monotonic() < deadline:
                    wait.ask_again = True

    def _is_over_in_time(self, wait: Wait, deadline: float) -> bool:
        """False before the deadline. Then the service has the last word, so that a timeout of 0 is a question."""
        if time.monotonic() < deadline:
            return False
        if wait.ask_again:
            self._ask(wait)
        if not wait.over:
            raise TimeoutElapsed("what was waited for did not happen in time")
        return True

    def _poll(self, wait: Wait, deadline: float) -> None:
        while True:
            self._ask(wait)
            if wait.over or self._is_over_in_time(wait, deadline):
                return
            time.sleep(self._pause(deadline))

    def _ask(self, wait: Wait) -> None:
        question = wait.question()
        sentence = wait.answer(data_of(question, accepted(self._ask_once(encode_request(question)))))
        if sentence is not None:
            raise RequestRefusedError(sentence)

    def _pause(self, deadline: float) -> float:
        return max(min(self._config.poll_delay, deadline - time.monotonic()), 0.0)

    def _find_again(self, deadline: float) -> None:
        """Until the service answers again, perhaps elsewhere and with other keys."""
        log.warning("the service is gone; looking for it for %g s", self._config.reconnect)
        limit = time.monotonic() + self._config.reconnect
        while True:
            self._target = self._target.again()
            self._drop_idle()
            try:
                self._ask_once(encode_request({"request": "status"}))
                return
            except ConnectionError:
                if time.monotonic() >= deadline:
                    raise TimeoutElapsed("the service was gone, and did not come back in time") from None
                if self._closed or time.monotonic() >= limit:
                    raise
                time.sleep(RECONNECT_PAUSE)
