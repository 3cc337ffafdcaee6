"""The launches that a job host gets and the records that it writes: plain tuples, for agents and for commands.

Python 3.6 reads this file: no `from __future__ import annotations`, no newer syntax.
"""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union

# One node of a grant: its name, the core ids and the GPU ids given on it.
NodeGrant = Tuple[str, Tuple[int, ...], Tuple[str, ...]]


STEP_ID = "QCG_PM_STEP_ID"
"""Environment variable with a different value for each attempt, by which all its processes are found, also daemons."""

FILES = "files"
"""Name of the directory in a run directory for files that come with launches."""
SHARED = "shared/"
"""Prefix of the names of files that several jobs share. Files of the same name have the same content."""


OUTPUT = "out"
"""Name of the directory in a run directory for the saved output of jobs."""
STREAMS = "streams"
"""Name of the directory in a run directory for output streams."""
_SUFFIXES = {"stdout": "out", "stderr": "err"}


def file_path(directory: str, id: str, name: str) -> str:
    """The path of a file that comes with a launch, under the directory of all such files."""
    return "%s/%s" % (directory, name) if name.startswith(SHARED) else "%s/%s/%s" % (directory, id, name)


def output_path(directory: str, name: str, stream: str) -> str:
    """The path at which captured output of a job is saved; `stream` is `stdout` or `stderr`."""
    return "%s/%s.%s" % (directory, name, _SUFFIXES[stream])


class RemoteRequest(NamedTuple):
    """The resources of an attempt, for a batch system on a remote host."""

    nodes: int
    """Number of nodes; 0 when the job did not ask for nodes."""
    cores: int
    """Cores on each node if `nodes` is given, otherwise in total; 0 for whole nodes."""
    gpus: int
    """GPUs on each node."""
    memory: int
    """Memory in MiB on each node; 0 when the job did not ask for memory."""
    wall_time: Optional[float]
    """Seconds; None without a limit."""


class RemotePart(NamedTuple):
    """The part of a launch for remote hosts: the directory of the attempt, its staging and its request."""

    directory: str
    """Directory of the attempt below the log directory of the run: `job/POINT/NAME/NN`."""
    point: str
    """Index of the iteration, or 1."""
    name: str
    """Name of the job as a file name."""
    number: int
    """Number of the attempt."""
    inputs: List[str]
    """Patterns of files that are copied to the working directory of the job before it starts; relative to the working
    directory of the manager."""
    outputs: List[str]
    """Patterns of files that are copied back after its end; relative to the working directory of the job."""
    directives: Dict[str, str]
    """Options for the batch system of the host; an empty value is an option without a value."""
    request: RemoteRequest


class Launch(NamedTuple):
    """One start of one job. The host refuses an `id` that it has started before."""

    id: str
    argv: List[str]
    env: Dict[str, str]
    """Added to the host's own environment; an empty value for a name in `unset` never occurs."""
    unset: List[str]
    """Variables removed from the host's own environment; a trailing `*` matches any rest of the name."""
    wd: str
    """Absolute path of the working directory; created when missing."""
    stdin: Optional[str]
    stdout: Optional[str]
    stderr: Optional[str]
    """Paths of the standard streams, relative to `wd`; parent directories are created. `None` is /dev/null, for stdout
    and stderr only without `output`. Equal paths of stdout and stderr mean one file."""
    cores: Optional[Tuple[int, ...]]
    """Core ids to bind to; `None` on virtual nodes, whose cores are not real."""
    wall_time: Optional[float]
    """Seconds until the whole process tree is ended."""
    setup: bool
    """argv starts with the setup wrapper, which reports errors (of a module or a venv) on descriptor 3."""
    grant: List[NodeGrant]
    """Opaque to the host, which reports it to a manager that has no record of this attempt."""
    files: Dict[str, str] = {}
    """Names and contents of files that exist at `file_path` while the job runs."""
    lane: str = ""
    """Jobs of one lane run one after another, in the order of their arrival. The name of a lane is the id of its first
    job, whose own `lane` may be empty."""
    output: str = ""
    """File name, without suffix, for captured output. Streams without a path are captured."""
    keep_output: bool = False
    """Save captured output also when the job succeeds."""
    remote: Optional[RemotePart] = None
    """Only for attempts on remote hosts. Their paths are relative to the run directory there, unless absolute."""
    stream: bool = False
    """Both streams go to the output stream of the node, under the name `output`."""
    memory: int = 0
    """MiB of memory that all its processes on this host may use together; 0 without a limit."""


class EndReason:
    """Why an attempt ended, as stored in ledgers and journals and sent in messages."""

    # Plain strings: an Enum would cost at each start and end of a job.
    EXIT = "exit"
    """Its process ended by itself, with any exit code."""
    CANCEL = "cancel"
    """A user cancelled the job."""
    TIMEOUT = "timeout"
    """Its wall time was over."""
    MEMORY = "memory"
    """It used more memory than it may, or memory ran out."""
    UNSTARTABLE = "unstartable"
    """Its process could not be started."""
    STAGING = "staging"
    """Its files could not be copied to or from a remote host."""
    LOST = "lost"
    """Its node or its agent was lost, so its result is not known."""
    CLOSED = "closed"
    """It was ended, or never started, because its agent or allocation ended; the job is started again later."""


class Started(NamedTuple):
    """The record of a start."""

    id: str
    pid: int
    at: float
    """Seconds since the epoch."""
    grant: List[NodeGrant]
    """As in the launch. A manager that died before it stored the launch in its journal restores it from here."""


class Usage(NamedTuple):
    """The resources that an attempt has used, over all its processes."""

    user: int
    """CPU time in the program itself, in microseconds."""
    system: int
    """CPU time in the kernel, in microseconds."""
    memory: int
    """Peak memory in KiB: of the largest process, or of all processes together where these are watched."""
    minor_faults: int
    """Page faults that needed no input."""
    major_faults: int
    """Page faults that had to read from a file or from swap space."""
    read: int
    """Bytes read from storage, without bytes that were in memory already."""
    written: int
    """Bytes written to storage, or still to be written."""

    @property
    def cpu(self) -> float:
        """CPU time in seconds."""
        return (self.user + self.system) / 1e6


class Ended(NamedTuple):
    """The record of an end, also of an attempt that could not be started."""

    id: str
    at: float
    exit_code: int
    """Negative for a signal, as in `subprocess`; -1 with pid 0 when no process was started."""
    reason: str
    """One of `EndReason`."""
    message: str
    """A sentence that explains the end to users; may be empty."""
    pid: int
    started: float
    """Start time in seconds since the epoch; 0 when it was never started."""
    grant: List[NodeGrant] = []
    """As in the launch; empty when no process can have been started. The record of the start may be missing."""
    usage: Optional[Usage] = None
    """The resources that it used; None if they were not measured."""


RecordBody = Union[Started, Ended]


class Record(NamedTuple):
    """A line of a ledger: a start or an end, with its number. Numbers count from 1 over the whole life of a host."""

    number: int
    body: RecordBody


class Running(NamedTuple):
    """A job that runs on a host, as reported to a manager that connects."""

    id: str
    pid: int
    started: float
    grant: List[NodeGrant]
