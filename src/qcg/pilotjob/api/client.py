"""A manager as a program sees it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from qcg.pilotjob.api.config import log, read_config
from qcg.pilotjob.api.errors import (
    ConnectionError,
    InternalError,
    RequestRefusedError,
    ServiceError,
    TimeoutElapsed,
    WrongArgumentsError,
)
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.jobinfo import JobInfo
from qcg.pilotjob.api.link import Line, Requests
from qcg.pilotjob.api.target import Target, find_target
from qcg.pilotjob.api.waiting import FINAL, WELCOME, Wait, WaitForAll, WaitForAny, WaitForJobs, parse_event

Names = str | Iterable[str]

RECONNECT_PAUSE = 0.25


class Manager:
    """Talks to a running manager. All methods may be called from any thread; none waits for ever for a service that
    is gone."""

    def __init__(self, address: str | None = None, cfg: Mapping[str, Any] | None = None) -> None:
        """The manager at an address, or, without one, the manager that runs this program as one of its jobs."""
        self._connect(find_target(address, os.environ), cfg)

    @classmethod
    def of_run(cls, run_dir: Path, cfg: Mapping[str, Any] | None = None) -> Manager:
        """The manager that is at work in a run directory."""
        from qcg.pilotjob.api.target import target_of

        manager = cls.__new__(cls)
        manager._connect(target_of(run_dir), cfg)
        return manager

    def _connect(self, target: Target, cfg: Mapping[str, Any] | None) -> None:
        self._config = read_config(cfg)
        self._target = target
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._idle: list[Requests] = []
        self._lock = threading.Lock()
        try:
            self.system_status()
        except ConnectionError:
            self.cleanup()
            raise

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Jobs) -> list[str]:
        """Submit a group of jobs, all or none; their names. When this returns, they are on the manager's disk."""
        if not isinstance(jobs, Jobs):
            raise WrongArgumentsError(f"submit wants a Jobs object, not {type(jobs).__name__}")
        data = self._data({"request": "submit", "jobs": jobs.ordered_jobs()})
        names: list[str] = data["jobs"]
        return names

    def list(self, names: Names | None = None) -> dict[str, Any]:
        """All jobs, or those of these names, with their states."""
        jobs: dict[str, Any] = self._data({"request": "listJobs"})["jobs"]
        return jobs if names is None else {name: jobs[name] for name in _list(names) if name in jobs}

    def status(self, names: Names) -> dict[str, Any]:
        return self._data({"request": "jobStatus", "jobNames": _list(names)})

    def info(self, names: Names, **params: Any) -> dict[str, Any]:
        """Everything about jobs; `withChilds=True` for each iteration too."""
        return self._data({"request": "jobInfo", "jobNames": _list(names), "params": params})

    def info_parsed(self, names: Names, **params: Any) -> dict[str, JobInfo]:
        """The same as objects; names that are not there are left out."""
        jobs = self.info(names, **params)["jobs"]
        return {name: JobInfo.from_job(entry["data"]) for name, entry in jobs.items() if entry["status"] == 0}

    def cancel(self, names: Names) -> dict[str, Any]:
        return self._data({"request": "cancelJob", "jobNames": _list(names)})

    def remove(self, names: Names) -> dict[str, Any]:
        return self._data({"request": "removeJob", "jobNames": _list(names)})

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait4(self, names: Names, timeout: float | None = None) -> dict[str, str]:
        """Wait until all these jobs or iterations have ended; their final states."""
        wait = WaitForJobs(_list(names))
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

    @staticmethod
    def is_status_finished(status: str) -> bool:
        return status in FINAL

    # -- the service ------------------------------------------------------------------------------------------------

    def resources(self) -> dict[str, Any]:
        return self._data({"request": "resourcesInfo"})

    def system_status(self) -> dict[str, Any]:
        return self._data({"request": "status"})

    def finish(self) -> None:
        """End the service now; running jobs are ended with it."""
        self.send_request({"request": "finish"})

    def cleanup(self) -> None:
        """Give back connections. The service goes on."""
        with self._lock:
            idle, self._idle = self._idle, []
        for requests in idle:
            requests.close()
        self._context.destroy(linger=0)

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cleanup()

    def send_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Any request, as in a request file; the whole answer."""
        log.debug("request %s", request.get("request"))
        with self._requests() as requests:
            answer = requests.ask(request, self._config.request_timeout)
        if answer["code"] != 0:
            raise RequestRefusedError(answer.get("message", "no reason was given"))
        return answer

    def _data(self, request: dict[str, Any]) -> dict[str, Any]:
        data = self.send_request(request).get("data")
        if not isinstance(data, dict):
            raise InternalError(f"the answer to {request['request']} has no data")
        return data

    @contextmanager
    def _requests(self) -> Iterator[Requests]:
        """A line of one's own for one request. One on which something went wrong is not used again."""
        with self._lock:
            requests = self._idle.pop() if self._idle else None
        if requests is None:
            requests = Requests(self._context, self._target.contact)
        try:
            yield requests
        except BaseException:
            requests.close()
            raise
        with self._lock:
            self._idle.append(requests)

    def _wait(self, wait: Wait, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self._follow(wait, deadline)
                return
            except RequestRefusedError:  # looking for the service again is of no use
                raise
            except ConnectionError:
                if not self._config.reconnect:
                    raise
                log.warning("the service is gone; looking for it for %g s", self._config.reconnect)
                self._find_again(deadline)
                wait.ask_again = True

    def _follow(self, wait: Wait, deadline: float | None) -> None:
        """Listen to events, and ask where they do not tell. Asking begins only when no event can be missed."""
        found = self._target.contact
        if not found.publisher:
            self._poll(wait, deadline)
            return
        line = Line(self._context, zmq.SUB, found, found.publisher)
        try:
            for topic in (*wait.topics, WELCOME.decode()):
                line.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
            while not (line.wait(_left(deadline, self._config.poll_delay)) and line.socket.recv() == WELCOME):
                _check(deadline)
            while True:
                if wait.ask_again:
                    self._ask(wait)
                if wait.over:
                    return
                if line.wait(_left(deadline, self._config.poll_delay)):
                    _take_events(line, wait)
                else:
                    wait.ask_again = True
                    _check(deadline)
        finally:
            line.close()

    def _poll(self, wait: Wait, deadline: float | None) -> None:
        while True:
            self._ask(wait)
            if wait.over:
                return
            _check(deadline)
            time.sleep(_left(deadline, self._config.poll_delay))

    def _ask(self, wait: Wait) -> None:
        sentence = wait.answer(self._data(wait.question()))
        if sentence is not None:
            raise RequestRefusedError(sentence)

    def _find_again(self, deadline: float | None) -> None:
        """Until the service answers again, perhaps elsewhere and with other keys."""
        limit = time.monotonic() + self._config.reconnect
        while True:
            self._target = self._target.again()
            with self._lock:
                idle, self._idle = self._idle, []
            for requests in idle:
                requests.close()
            try:
                self.system_status()
                return
            except ConnectionError:
                _check(deadline)
                if time.monotonic() >= limit:
                    raise
                time.sleep(RECONNECT_PAUSE)


def _take_events(line: Line, wait: Wait) -> None:
    while True:
        try:
            message = line.socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return
        if message != WELCOME:
            wait.event(*parse_event(message))


def _left(deadline: float | None, most: float) -> float:
    return most if deadline is None else max(min(most, deadline - time.monotonic()), 0.0)


def _check(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeoutElapsed("what was waited for did not happen in time")


def _list(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else [str(name) for name in names]
