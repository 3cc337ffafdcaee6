"""The data addresses of the dashboard: they take parameters and return JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.dashboard.allocations import allocations_of
from qcg.pilotjob.dashboard.feed import SummaryFeed
from qcg.pilotjob.dashboard.launch_analyser import LaunchAnalyser
from qcg.pilotjob.dashboard.timeline_keeper import TimelineKeeper
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.report.metrics_text import CONTENT_TYPE, metrics_text
from qcg.pilotjob.report.timeline import Level, Timeline
from qcg.pilotjob.watch.open import FollowedRun
from qcg.pilotjob.watch.source import Action, ActionRefused, JobQuery, Sort

JSON = "application/json"
POLL_SECONDS = 25.0
MOST_NODES_OF_GRAPH = 200
MOST_DEPTH = 5
LONGEST_TEXT = 4096
"""Characters of a parameter."""
MOST_ROWS = 500
MOST_BINS = 4000
SHORTEST_WINDOW = 1e-3
"""Seconds."""
MOST_NAMES = 10_000
"""Names of jobs in one action."""

Parameters = Mapping[str, list[str]]
T = TypeVar("T", int, float)


class Answer(NamedTuple):
    content: bytes
    type: str = JSON
    status: HTTPStatus = HTTPStatus.OK


class WrongRequest(Exception):
    """A request that cannot be answered; the message is a sentence."""

    def __init__(self, sentence: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(sentence)
        self.status = status


class _Act(msgspec.Struct, forbid_unknown_fields=True):
    action: Action
    names: list[str]


class Api:
    """Answers requests for data from a run. All methods may be called from any thread."""

    def __init__(self, run: FollowedRun, feed: SummaryFeed, *, control: bool) -> None:
        self._run = run
        self._feed = feed
        self._control = control
        self._timelines = TimelineKeeper(run)
        self._analyser = LaunchAnalyser(run)
        self.reads: dict[str, Callable[[Parameters], Answer]] = {
            "api/summary": self._summary,
            "api/poll": self._poll,
            "api/jobs": self._jobs,
            "api/job": self._job,
            "api/output": self._output,
            "api/graph": self._graph,
            "api/timeline": self._timeline,
            "api/usage": self._usage,
            "api/analysis": self._analysis,
            "api/allocations": self._allocations,
            "metrics": self._metrics,
        }
        """Answers to GET, by address."""

    def close(self) -> None:
        self._analyser.close()

    def act(self, body: bytes) -> Answer:
        """Change jobs: the answer to POST `api/act`."""
        try:
            wanted = msgspec.json.decode(body, type=_Act)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WrongRequest(f"The request is not understood: {printable(str(error))}.") from None
        if not 1 <= len(wanted.names) <= MOST_NAMES:
            raise WrongRequest(f"Name 1 to {MOST_NAMES} jobs.")
        try:
            return _json({"message": self._run.act(wanted.action, wanted.names)})
        except ActionRefused as refused:
            raise WrongRequest(str(refused), HTTPStatus.CONFLICT) from None

    def _summary(self, given: Parameters) -> Answer:
        _, encoded = self._feed.latest()
        self._timelines.prepare()
        return Answer(with_control(encoded, control=self._control))

    def _poll(self, given: Parameters) -> Answer:
        found = self._feed.next(_number(given, "after", float, 0.0), POLL_SECONDS)
        if found is None:
            return Answer(b"", status=HTTPStatus.NO_CONTENT)
        return Answer(with_control(found[1], control=self._control))

    def _jobs(self, given: Parameters) -> Answer:
        states = tuple(given.get("state", ()))
        for name in states:
            if name not in State.__members__:
                raise WrongRequest(f"{_quoted(name)} is no state; states are {', '.join(State.__members__)}.")
        query = JobQuery(
            search=_text(given, "search"),
            states=states,
            job=_text(given, "job"),
            sort=_choice(given, "sort", get_args(Sort), "submitted"),
            descending=_flag(given, "descending"),
            first=_natural(given, "first", 0),
            limit=_natural(given, "limit", 100),
        )
        return _json(self._run.jobs(query))

    def _job(self, given: Parameters) -> Answer:
        name = _name(given)
        found = self._run.job(name)
        if found is None:
            raise _no_job(name)
        return _json(found)

    def _output(self, given: Parameters) -> Answer:
        name = _name(given)
        stream = _choice(given, "stream", ("stdout", "stderr"), "stdout")
        found = self._run.output(name, stream, _number(given, "offset", int, 0))
        if found is None:
            raise WrongRequest(f"Job {_quoted(name)} has no {stream} that can be shown.", HTTPStatus.NOT_FOUND)
        return _json(found)

    def _graph(self, given: Parameters) -> Answer:
        name = _name(given)
        depth = min(max(_number(given, "depth", int, 2), 0), MOST_DEPTH)
        found = self._run.graph(name, depth, MOST_NODES_OF_GRAPH)
        if found is None:
            raise _no_job(name)
        return _json(found)

    def _timeline(self, given: Parameters) -> Answer:
        timeline = self._timelines.latest()
        first, last = _window(given, timeline)
        level = _choice(given, "level", get_args(Level), "core")
        begin = max(_number(given, "from", int, 0), 0)
        count = min(max(_number(given, "count", int, 50), 0), MOST_ROWS)
        width = min(max(_number(given, "width", int, 1000), 1), MOST_BINS)
        rows = timeline.rows(first, last, width, slice(begin, begin + count), level)
        return _json(
            {
                "first": first,
                "last": last,
                "begin": timeline.first,
                "end": timeline.last,
                "lanes_total": timeline.lanes(level),
                "rows": rows,
            }
        )

    def _usage(self, given: Parameters) -> Answer:
        timeline = self._timelines.latest()
        first, last = _window(given, timeline)
        bins = min(max(_number(given, "bins", int, 200), 1), MOST_BINS)
        counts = msgspec.to_builtins(timeline.throughput(first, last, bins))
        used = timeline.utilisation(first, last, bins)
        return _json({"first": first, "last": last, "utilisation": used, **counts})

    def _analysis(self, given: Parameters) -> Answer:
        return Answer(self._analyser.latest())

    def _allocations(self, given: Parameters) -> Answer:
        return _json({"allocations": allocations_of(self._run)})

    def _metrics(self, given: Parameters) -> Answer:
        summary, _ = self._feed.latest()
        return Answer(metrics_text(summary).encode(), CONTENT_TYPE)


def with_control(summary: bytes, *, control: bool) -> bytes:
    """The JSON of a summary with one more key: whether this dashboard may change jobs."""
    return summary[:-1] + (b',"control":true}' if control else b',"control":false}')


def error_content(sentence: str) -> bytes:
    return msgspec.json.encode({"error": sentence})


def problem_of(error: JournalError) -> WrongRequest:
    """The answer if the registry cannot be read."""
    return WrongRequest(printable(str(error)), HTTPStatus.SERVICE_UNAVAILABLE)


def _json(value: Any) -> Answer:
    return Answer(msgspec.json.encode(value))


def _no_job(name: str) -> WrongRequest:
    return WrongRequest(f"There is no job {_quoted(name)}.", HTTPStatus.NOT_FOUND)


def _quoted(text: str) -> str:
    shown = printable(text)
    return repr(shown if len(shown) <= 100 else f"{shown[:100]}…")


def _window(given: Parameters, timeline: Timeline) -> tuple[float, float]:
    """The window of time to show; the whole run by default."""
    first = _number(given, "first", float, timeline.first)
    last = _number(given, "last", float, timeline.last)
    if last < first:
        raise WrongRequest("last is before first.")
    return first, max(last, first + SHORTEST_WINDOW)


# -- parameters -----------------------------------------------------------------------------------------------------


def _text(given: Parameters, key: str) -> str:
    values = given.get(key, [""])
    if len(values) > 1 or len(values[0]) > LONGEST_TEXT:
        raise WrongRequest(f"Give {key} once, with at most {LONGEST_TEXT} characters.")
    return values[0]


def _name(given: Parameters) -> str:
    name = _text(given, "name")
    if not name:
        raise WrongRequest("Give the name of a job: name=NAME.")
    return name


def _number(given: Parameters, key: str, kind: type[T], default: T) -> T:
    text = _text(given, key)
    if not text:
        return default
    try:
        value = kind(text)
        if not -(2**62) < value < 2**62:  # also false for NaN
            raise ValueError
    except ValueError:
        raise WrongRequest(f"{key} is {_quoted(text)}, which is no number that can be used.") from None
    return value


def _natural(given: Parameters, key: str, default: int) -> int:
    value = _number(given, key, int, default)
    if value < 0:
        raise WrongRequest(f"{key} is {value}; it must be at least 0.")
    return value


def _flag(given: Parameters, key: str) -> bool:
    return _choice(given, key, ("", "0", "1", "false", "true"), "") in ("1", "true")


def _choice(given: Parameters, key: str, choices: tuple[Any, ...], default: Any) -> Any:
    value = _text(given, key) or default
    if value not in choices:
        raise WrongRequest(f"{key} is {_quoted(value)}; it can be {', '.join(filter(None, choices))}.")
    return value
