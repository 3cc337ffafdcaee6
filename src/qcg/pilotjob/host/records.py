"""What a host is told and what it tells: plain tuples, the same for an agent and for one-shot commands.

Python 3.6 reads this file: no `from __future__ import annotations`, no newer syntax.
"""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union

# One node of a grant: its name, the core ids and the GPU ids given on it.
NodeGrant = Tuple[str, Tuple[int, ...], Tuple[str, ...]]


STEP_ID = "QCG_PM_STEP_ID"
"""Environment variable with a different value for each attempt: it marks all its processes, also daemons."""

FILES = "files"
"""The directory of the files that come with launches, in a run directory."""
SHARED = "shared/"
"""What the names of files begin with that several jobs have in common. One such name never has two contents."""


OUTPUT = "out"
"""The directory of the saved output of jobs, in a run directory."""
_ENDINGS = {"stdout": "out", "stderr": "err"}


def file_path(directory: str, id: str, name: str) -> str:
    """Where the file of a launch is, under the directory of all such files."""
    return "%s/%s" % (directory, name) if name.startswith(SHARED) else "%s/%s/%s" % (directory, id, name)


def output_path(directory: str, name: str, stream: str) -> str:
    """Where the captured output of a job is saved; `stream` is `stdout` or `stderr`."""
    return "%s/%s.%s" % (directory, name, _ENDINGS[stream])


class Launch(NamedTuple):
    """One start of one job. The host refuses an `id` that it has started before."""

    id: str
    argv: List[str]
    env: Dict[str, str]
    """Added to the host's own environment; an empty value for a name in `unset` never occurs."""
    unset: List[str]
    """Names taken out of the host's own environment; one that ends in `*` stands for all that begin so."""
    wd: str
    """Absolute; made when missing."""
    stdin: Optional[str]
    stdout: Optional[str]
    stderr: Optional[str]
    """Relative to `wd`; parent folders are made; `None` is /dev/null, for stdout and stderr only without `output`;
    stdout == stderr is one file."""
    cores: Optional[Tuple[int, ...]]
    """Real core ids to bind to, or `None` where cores are pretended."""
    wall_time: Optional[float]
    """Seconds until the whole process tree is ended."""
    setup: bool
    """argv starts with the setup wrapper, which reports what went wrong (module, venv) on descriptor 3."""
    grant: List[NodeGrant]
    """Opaque to the host; told back to a manager that has lost its memory."""
    files: Dict[str, str] = {}
    """Names and texts of files that are there while the job runs, at `file_path`."""
    lane: str = ""
    """Jobs of one lane run one after another, in the order in which they come. A lane has the id of the first of them,
    which itself needs not say so."""
    output: str = ""
    """The file name, without its ending, under which captured output is saved. Streams without a file are captured."""
    keep_output: bool = False
    """Save it also when the job succeeds."""


class Started(NamedTuple):
    id: str
    pid: int
    at: float
    """Seconds since the epoch."""
    grant: List[NodeGrant]
    """As in the launch: a manager that died before its journal had the launch learns it from here."""


class Ended(NamedTuple):
    id: str
    at: float
    exit_code: int
    """As Python has it: negative for a signal; -1 with pid 0 when nothing was started."""
    reason: str
    """`exit`, `cancel`, `timeout`, `unstartable`, `lost`, or `closed`: to be run again later."""
    message: str
    """A sentence for people when there is something to say, else empty."""
    pid: int
    started: float
    """When it was started; 0 when it never was."""
    grant: List[NodeGrant] = []
    """As in the launch, of one that was started, or may have been: its start may be told nowhere else."""


class Record(NamedTuple):
    """A line of a ledger: a start or an end, with its number. Numbers count from 1 over the whole life of a host."""

    number: int
    body: Union[Started, Ended]


class Running(NamedTuple):
    """A job that a host has under way, as told to a manager that asks."""

    id: str
    pid: int
    started: float
    grant: List[NodeGrant]
