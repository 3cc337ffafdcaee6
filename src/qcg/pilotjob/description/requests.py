"""The API requests of the manager, and their decoding."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta, Raw, Struct, field

from qcg.pilotjob.description.errors import Problem, RequestError, quoted, suggestion
from qcg.pilotjob.description.forms import Mem, NodeCrs, NumCores, NumNodes, Priority, WallTime
from qcg.pilotjob.description.json_input import InvalidJson, as_json, decode_untyped
from qcg.pilotjob.description.validation import find_problems


class Submit(Struct, tag_field="request", tag="submit", forbid_unknown_fields=True):
    """Submits jobs: all of them, or none when one is wrong."""

    jobs: Annotated[list[Raw], Meta(description="The jobs, each in the standard or the simple form.", min_length=1)]


class Control(Struct, tag_field="request", tag="control", forbid_unknown_fields=True):
    """Sets a mode of the manager."""

    command: Annotated[
        Literal["finishAfterAllTasksDone"],
        Meta(description="finishAfterAllTasksDone: end the manager as soon as every job has ended."),
    ]


StateName = Literal["QUEUED", "SCHEDULED", "EXECUTING", "SUCCEED", "FAILED", "CANCELED", "OMITTED"]


class ListJobs(Struct, tag_field="request", tag="listJobs", forbid_unknown_fields=True):
    """Lists jobs with their states: all of them, or a page of them."""

    after: Annotated[str | None, Meta(description="List the jobs submitted after the one with this name.")] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="The most jobs to list; the reply says if there are more.")
    ] = None
    states: Annotated[list[StateName] | StateName | None, Meta(description="Only jobs in these states.")] = None
    pattern: Annotated[
        list[str] | str | None,
        Meta(description="Only jobs with these names, which may contain the wildcards *, ? and [...]."),
    ] = None

    @property
    def is_complete(self) -> bool:
        """Whether all jobs are listed."""
        return self.after is None and self.limit is None and self.states is None and self.pattern is None

    @property
    def patterns(self) -> list[str] | None:
        return [self.pattern] if isinstance(self.pattern, str) else self.pattern

    @property
    def state_names(self) -> list[StateName]:
        return [self.states] if isinstance(self.states, str) else list(self.states or ())


JobNames = Annotated[
    list[str] | str | None, Meta(description="Names of jobs, or of single iterations (job:3): a list, or one name.")
]
JobName = Annotated[str | None, Meta(description="One name; the older spelling of jobNames.")]


class _AboutJobs(Struct, forbid_unknown_fields=True):
    job_names: JobNames = field(default=None, name="jobNames")
    job_name: JobName = field(default=None, name="jobName")

    @property
    def names(self) -> list[str]:
        """The names without duplicates, in the order given."""
        given = [self.job_names] if isinstance(self.job_names, str) else list(self.job_names or ())
        if self.job_name is not None:
            given.append(self.job_name)
        return list(dict.fromkeys(given))


class JobStatus(_AboutJobs, tag_field="request", tag="jobStatus", forbid_unknown_fields=True):
    """Returns the states of jobs."""


class InfoParams(Struct, forbid_unknown_fields=True):
    """Options of jobInfo."""

    with_childs: Annotated[bool | None, Meta(description="Include each iteration.")] = field(
        default=None, name="withChilds"
    )


class JobInfo(_AboutJobs, tag_field="request", tag="jobInfo", forbid_unknown_fields=True):
    """Returns all details of jobs."""

    params: Annotated[InfoParams | None, Meta(description="Options.")] = None

    @property
    def with_childs(self) -> bool:
        return self.params is not None and bool(self.params.with_childs)


class Why(_AboutJobs, tag_field="request", tag="why", forbid_unknown_fields=True):
    """Explains what jobs wait for, where they run, or why they failed."""


class EndedJobs(Struct, tag_field="request", tag="endedJobs", forbid_unknown_fields=True):
    """Lists jobs that have ended since a given end, in the order of their ends."""

    after: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Number of the last known end; without it, no end is listed."),
    ] = None


class CancelJob(_AboutJobs, tag_field="request", tag="cancelJob", forbid_unknown_fields=True):
    """Cancels waiting and running jobs."""


class HoldJob(_AboutJobs, tag_field="request", tag="holdJob", forbid_unknown_fields=True):
    """Holds waiting jobs: they are not started until they are released."""


class ReleaseJob(_AboutJobs, tag_field="request", tag="releaseJob", forbid_unknown_fields=True):
    """Releases held jobs."""


class SetJob(_AboutJobs, tag_field="request", tag="setJob", forbid_unknown_fields=True):
    """Changes the requests of waiting jobs; keys that are not given keep their values."""

    num_cores: NumCores = field(default=None, name="numCores")
    num_nodes: NumNodes = field(default=None, name="numNodes")
    node_crs: NodeCrs = field(default=None, name="nodeCrs")
    mem: Mem = None
    wt: WallTime = None
    priority: Priority = None


class RemoveJob(_AboutJobs, tag_field="request", tag="removeJob", forbid_unknown_fields=True):
    """Removes jobs that have ended, so that their names can be used again."""


EndState = Literal["FAILED", "CANCELED", "OMITTED", "failed", "canceled", "omitted"]


class RerunJob(Struct, tag_field="request", tag="rerunJob", forbid_unknown_fields=True):
    """Runs jobs again that have ended without success, and their omitted dependents."""

    job_names: Annotated[
        list[str] | str | None,
        Meta(description="Names of jobs, or of single iterations (job:3): a list, or one name. Without it, all jobs."),
    ] = field(default=None, name="jobNames")
    states: Annotated[
        list[EndState] | EndState | None,
        Meta(description="Only jobs and iterations in these states: FAILED, CANCELED, OMITTED; all by default."),
    ] = None
    jobs: Annotated[
        list[Raw] | None,
        Meta(description="New descriptions for some of the jobs, with the same names and iterations."),
    ] = None
    reread: Annotated[
        bool,
        Meta(description="Read the parameter files of these jobs again, and use the new rows."),
    ] = False

    @property
    def names(self) -> list[str]:
        """The names without duplicates, in the order given."""
        return list(dict.fromkeys([self.job_names] if isinstance(self.job_names, str) else self.job_names or ()))


class ResourcesInfo(Struct, tag_field="request", tag="resourcesInfo", forbid_unknown_fields=True):
    """Returns the number of nodes and cores, in total and in use."""


class Hosts(Struct, tag_field="request", tag="hosts", forbid_unknown_fields=True):
    """Returns the states of remote hosts: connected, not used yet, or unreachable and why."""


class ConnectHost(Struct, tag_field="request", tag="connectHost", forbid_unknown_fields=True):
    """Tries to reach a remote host again now, without waiting for the next attempt."""

    host: Annotated[str, Meta(description="The name of the host in hosts.toml.")]


class ForgetHost(Struct, tag_field="request", tag="forgetHost", forbid_unknown_fields=True):
    """Gives up a remote host that is unreachable: its running jobs count as lost."""

    host: Annotated[str, Meta(description="The name of the host in hosts.toml.")]


NodeNames = Annotated[
    Annotated[list[str], Meta(min_length=1)] | str,
    Meta(description="Names of nodes, or of remote hosts: a list, or one name."),
]


class DrainNodes(Struct, tag_field="request", tag="drainNodes", forbid_unknown_fields=True):
    """Starts no more jobs on these nodes. Jobs that run there continue."""

    nodes: NodeNames
    reason: Annotated[str, Meta(description="Why, for the notice and for status.", max_length=1000)] = ""


class ResumeNodes(Struct, tag_field="request", tag="resumeNodes", forbid_unknown_fields=True):
    """Starts jobs on drained nodes again."""

    nodes: NodeNames


class PollJobs(Struct, tag_field="request", tag="pollJobs", forbid_unknown_fields=True):
    """Asks remote hosts for the states of their jobs now, and returns them."""

    job_names: JobNames = field(default=None, name="jobNames")
    host: Annotated[
        str | None, Meta(description="Ask this host; without it and without jobNames, all hosts are asked.")
    ] = None

    @property
    def names(self) -> list[str]:
        """The names without duplicates, in the order given."""
        return list(dict.fromkeys([self.job_names] if isinstance(self.job_names, str) else self.job_names or ()))


class Finish(Struct, tag_field="request", tag="finish", forbid_unknown_fields=True):
    """Ends the manager now. Running jobs are killed and CANCELED, waiting ones stay QUEUED for --resume."""

    cancel: Annotated[bool, Meta(description="Also cancel waiting jobs.")] = False


class StatusOptions(Struct, forbid_unknown_fields=True):
    """Options of status."""

    all_jobs_finished: Annotated[bool | None, Meta(description="Return only whether every job has ended.")] = field(
        default=None, name="allJobsFinished"
    )


class Status(Struct, tag_field="request", tag="status", forbid_unknown_fields=True):
    """Returns an overview of the manager."""

    options: Annotated[StatusOptions | None, Meta(description="Options.")] = None

    @property
    def all_jobs_finished(self) -> bool:
        return self.options is not None and bool(self.options.all_jobs_finished)


class Summary(Struct, tag_field="request", tag="summary", forbid_unknown_fields=True):
    """Returns the data for displays: counts, resources, rates, expected end, reasons and history."""


Request = Union[
    Submit,
    Control,
    ListJobs,
    JobStatus,
    JobInfo,
    Why,
    EndedJobs,
    CancelJob,
    HoldJob,
    ReleaseJob,
    SetJob,
    RemoveJob,
    RerunJob,
    ResourcesInfo,
    Hosts,
    ConnectHost,
    ForgetHost,
    DrainNodes,
    ResumeNodes,
    PollJobs,
    Finish,
    Status,
    Summary,
]
REQUESTS: dict[str, type[Struct]] = {
    "submit": Submit,
    "control": Control,
    "listJobs": ListJobs,
    "jobStatus": JobStatus,
    "jobInfo": JobInfo,
    "why": Why,
    "endedJobs": EndedJobs,
    "cancelJob": CancelJob,
    "holdJob": HoldJob,
    "releaseJob": ReleaseJob,
    "setJob": SetJob,
    "removeJob": RemoveJob,
    "rerunJob": RerunJob,
    "resourcesInfo": ResourcesInfo,
    "hosts": Hosts,
    "connectHost": ConnectHost,
    "forgetHost": ForgetHost,
    "drainNodes": DrainNodes,
    "resumeNodes": ResumeNodes,
    "pollJobs": PollJobs,
    "finish": Finish,
    "status": Status,
    "summary": Summary,
}

_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_list_decoder = msgspec.json.Decoder(list[Raw])
_object_decoder = msgspec.json.Decoder(dict[str, Raw])


def decode_request(raw: bytes | Raw | dict[str, Any], path: str = "") -> Request:
    """Decode one request; raises `RequestError` with all its problems. The jobs of a submit request stay encoded."""
    try:
        text = as_json(raw)
        try:
            request = _decoder.decode(text)
        except msgspec.ValidationError as error:
            raise RequestError(_problems(decode_untyped(text), error, path)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidJson.because(error) from None
    except InvalidJson as unreadable:
        raise RequestError([Problem(path, f"the request {unreadable}")]) from None
    if isinstance(request, _AboutJobs) and request.job_names is None and request.job_name is None:
        raise RequestError([Problem(path, 'the key "jobNames" is missing')])
    if isinstance(request, RerunJob) and not (request.names or request.states or request.jobs):
        raise RequestError([Problem(path, 'give "jobNames", "states" or "jobs": what is run again')])
    return request


def decode_request_file(raw: bytes) -> list[Raw]:
    """Split a request file into requests, still encoded, so that a large file is held in memory once.

    An array of jobs counts as one submit request, and a single object as an array of one.
    """
    text = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        if text.lstrip().startswith(b"{"):
            _object_decoder.decode(text)
            if not _are_jobs([Raw(text)], text):
                return [Raw(text)]
            text = b"[%b]" % text
        found = _list_decoder.decode(text)
        return [Raw(b'{"request":"submit","jobs":%b}' % text)] if _are_jobs(found, text) else found
    except msgspec.ValidationError:
        sentence = "a request file must hold one request, or an array of requests: [ {...}, {...} ]"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        sentence = f"the request file {InvalidJson.because(error)}{_line_and_column(text, error)}"
        if not text.lstrip().startswith((b"[", b"{")):
            sentence += "; a request file is a JSON array of jobs or requests, see: qcg-pm schema"
    raise RequestError([Problem("", sentence)])


def _are_jobs(entries: list[Raw], text: bytes) -> bool:
    """Whether all entries look like jobs. Only a text search, as there may be a million; parsing checks them later."""
    if not entries or b'"request"' in text or _JOBS.match(bytes(entries[0])):
        return False
    return all(any(key in bytes(entry) for key in _KEYS_OF_JOBS) for entry in entries)


_KEYS_OF_JOBS = (b'"name"', b'"exec"', b'"script"', b'"execution"')
_JOBS = re.compile(rb'\s*\{\s*"jobs"\s*:')
"""A submit request without its "request" key."""


def _line_and_column(text: bytes, error: Exception) -> str:
    """The line and column of a decoder error, which gives its position in bytes."""
    if not text.strip():
        return ": it is empty"
    found = re.search(r"\(byte (\d+)\)", str(error))
    if found is None:
        return ""
    before = text[: int(found[1])]
    line = before.count(b"\n") + 1
    column = len(before) - (before.rfind(b"\n") + 1) + 1
    return f", line {line}, column {column}"


_KEYS_OF_SUBMISSIONS = frozenset({"jobs", "name", "exec", "script", "execution"})


def _problems(value: Any, error: msgspec.ValidationError, path: str) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(path, 'a request must be an object with the key "request"')]
    name = value.get("request")
    if not isinstance(name, str):
        known = ", ".join(REQUESTS)
        if name is None and not _KEYS_OF_SUBMISSIONS.isdisjoint(value):
            sentence = 'the key "request" is missing; to submit jobs, write {"request": "submit", "jobs": [ {...} ]}'
            return [Problem(path, sentence)]
        return [Problem(path, f'the key "request" must hold the name of a request, one of: {known}')]
    if name not in REQUESTS:
        return [Problem(path, f"unknown request {quoted(name)}{suggestion(name, tuple(REQUESTS))}")]
    return find_problems(value, REQUESTS[name], path) or [Problem(path, f"the request is not valid: {error}")]
