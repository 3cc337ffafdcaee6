"""The commands of a batch system as data, for remote hosts that know nothing of any batch system."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Cause(str, Enum):
    """Why a batch job is over, as far as its state tells."""

    NONE = ""
    """Its script ended by itself."""
    CANCELLED = "cancelled"
    TIME_LIMIT = "time limit"
    MEMORY = "memory"
    NODE_FAILED = "node failed"
    PREEMPTED = "preempted"


class RemoteQueue(Struct, frozen=True, kw_only=True):
    """How jobs are submitted, followed and killed on a host that reaches the batch system.

    Commands are lists of words, run without a shell. Words and directives are templates with fields in braces. A
    word that is `{ids}` or `{names}` alone becomes one word for each id or name; inside a longer word they are lists
    separated by commas. Texts of the batch system are recognized with regular expressions for Python 3.6, which are
    searched for in each line.

    `host/remote/batch_queue.py` reads it, as JSON.
    """

    name: str
    """As `BatchSystem.name`."""
    label: str
    """As `BatchSystem.label`."""

    submit: list[str]
    """Submits the batch script `{script}`, with `{directory}` as the current directory."""
    submitted: str
    """Finds the id of the new batch job in the output of `submit`; it has the group `id`."""

    prefix: str
    """Begins the line of a directive in a batch script, with the blank before the option."""
    directives: list[str]
    """Options of every batch job, in order: `--name=VALUE`, or `-n VALUE` with a blank. Values are quoted where needed.

    An option with a field that the job does not ask for is left out. A part of an option in square brackets is left out
    by itself: `-l select={nodes}[:ncpus={cores}][:mem={memory}mb]`.

    Fields: `{name}`, the unique name of the batch job; `{output}` and `{error}`, paths of files, to which the batch
    system must append; `{nodes}`; `{cores}`, `{gpus}` and `{memory}` (MiB) of each node; `{whole_nodes}`, an empty
    text, for jobs that ask for nodes and not for cores; `{seconds}`, `{minutes}` and `{hms}` (`26:03:04`) of the time
    limit, which is a little longer than the wall time of the job.
    """
    reserved: list[str] = []
    """Options that users cannot give: options that would change the name of the batch job, or start it several
    times."""
    variables: dict[str, str] = {}
    """For options of a script: the variable that the batch system would prefer to the option."""

    list_jobs: list[str]
    """Lists the batch jobs `{ids}`, one in each line, as far as they are known."""
    find_jobs: list[str]
    """Lists the batch jobs of user `{user}` that have one of these `{names}`, and also others where the batch system
    does not search for names: they are ignored."""
    job_line: str
    """A line of both lists; it has the groups `id`, `name` and `state`."""
    waiting: list[str]
    """States of batch jobs that have not started."""
    over: dict[str, Cause]
    """States of batch jobs that are over. All other states are those of jobs that run."""
    unknown: str
    """Words with which commands answer that a batch job is not known."""
    unreachable: str
    """Words with which commands answer that the batch system cannot be asked now, whatever their exit code."""

    list_ended: list[str] = []
    """Lists batch jobs `{ids}` that `list_jobs` has forgotten; empty where there is no such command."""
    ended_line: str = ""
    """A line of `list_ended`; it has the groups `id` and `state`."""

    kill: list[str]
    """Ends the batch jobs `{ids}`, whether they wait or run: SIGTERM to their processes, later SIGKILL."""
    signal: list[str] = []
    """Sends signal `{signal}` (a number) to the first process of the batch jobs `{ids}`."""

    id_variable: str
    """The variable with which a batch job finds its own id."""
    hide: list[str] = []
    """Variables that the commands must not see; a trailing `*` matches any rest of the name."""
    keep: list[str] = []
    """Variables among those of `hide` that they need."""

    timeout: float = 90.0
    """Seconds after which a command is killed."""
    grace: float = 8.0
    """Seconds between SIGTERM and SIGKILL for the processes of a job: less than the batch system gives."""
    submit_poll_interval: float = 60.0
    """Seconds between two queries of the queue while batch jobs wait."""
    poll_interval: float = 60.0
    """Seconds between two queries of the queue while all batch jobs run."""
