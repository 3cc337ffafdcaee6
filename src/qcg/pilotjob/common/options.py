"""Options of a manager: commands fill them in, and a resumed run uses them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

ReportFormat = Literal["text", "json", "none"]


class Options(Struct, frozen=True, omit_defaults=True):
    wd: str = "."
    id: str | None = None
    file_path: str | None = None
    """Path of a request file."""
    net: bool = False
    """Open the network interface."""
    net_port: str = "*"
    """Port for requests: a number, a range such as `2222-9999`, or `*` for any."""
    net_pub_port: str = "*"
    """Port for events."""
    insecure_net: bool = False
    """No keys: for clients without them; everybody on this host can connect."""
    wait: bool = False
    """Wait for all jobs even when the request file does not ask for it."""
    nodes: str | None = None
    """Virtual nodes of this machine."""
    resources: str = "auto"
    """Where nodes come from: `auto`, `local`, or the name of a batch system."""
    named: tuple[str, ...] = ()
    """Named counters: `license=4` of the run, `fpga=2/node` of each of its nodes."""
    hosts: str | None = None
    """Path of a file with remote hosts, besides the files of the site and of the user."""
    envschema: str = "auto"
    report_format: ReportFormat = "text"
    report_file: str = "jobs.report"
    log: str = "info"
    system_core: bool = False
    share_cores: bool = False
    """Use all cores of this host, including cores that other runs have claimed."""
    no_bind: bool = False
    """Bind no job to cores, and claim none."""
    show_progress: bool = False
    rerun_lost: bool = False
    retry: str | None = None
    """Retry policy of jobs without one of their own, as JSON: a number, or an object as in request files."""
    enforce_memory: bool = False
    """End every job that uses more memory than it requests, also with `nodeCrs`."""
    drain_after: int = 5
    """Failures of a node in a row after which it gets no new jobs; 0: never."""
    stop_after: int = 0
    """Failures after which nothing more is started; 0: never."""
    notify: tuple[str, ...] = ()
    """Commands that notify the user."""
    notify_on: str = "end,first-failure,stall"
    """The events that they notify of."""
    metrics_file: str | None = None
    """Path of a file with metrics of the run."""
    keep_output: bool = False
    """Save the output of successful jobs, too."""
    stream_output: bool = False
    """Collect the output of jobs that name no file for it in output streams."""
    patience: float = 600.0
    """Seconds for which later jobs may overtake a job that does not fit."""
    linger: float = 600.0
    """Seconds that an agent waits for a manager after its last job."""
    node_timeout: float = 25.0
    """Seconds of silence after which a node counts as lost."""
    nl_init_timeout: float = 600.0
    """Seconds for the agents of an allocation's nodes to connect."""
    nl_ready_threshold: float = 1.0
    """The part of these agents that must be connected before jobs are started."""
    nl_start_method: str = "batch"
    """How these agents are started: `ssh`, or by the batch system itself, which has the value `batch`; in runs of
    earlier versions also the name of the batch system, or none."""
    first_node: int | None = field(default=None, name="slurm_limit_nodes_range_begin")
    """The first node of the allocation to use, counted from 0; None: the first of all."""
    end_node: int | None = field(default=None, name="slurm_limit_nodes_range_end")
    """The node of the allocation before which to stop; None: all up to the last.

    Registries have these two options under the names of earlier versions."""
    time_limit: float | None = None
    """Seconds after which this manager ends; another one can continue."""
    grace: float | None = None
    """Seconds before that, or before the end of the allocation, in which no job starts; None: see `grace_period`."""
    grace_signal: str | None = None
    """The signal that running jobs get at the start of the grace period."""
    pretend: bool = False
    """Start no processes, to measure the manager alone: jobs end at once."""


DEFAULT_GRACE = 60.0
"""Seconds of the grace period without `--grace`."""
LARGEST_DEFAULT_PART = 0.1
"""The largest part of the whole time that the default grace period takes."""


def grace_period(grace: float | None, seconds: float) -> float:
    """Seconds before the end in which no job is started: `--grace`, or the default for `seconds` in all."""
    return min(DEFAULT_GRACE, LARGEST_DEFAULT_PART * seconds) if grace is None else grace


class Resumption(Struct, frozen=True):
    """A run to resume."""

    run_dir: Path
    changes: dict[str, Any]
    """Options that change."""
    anew: bool = False
    """The run gets more requests, so an earlier request to finish no longer counts."""
    rerun: tuple[str, ...] = ()
    """States without success, in lower case: jobs and iterations in them are run again."""
    replacements: tuple[dict[str, Any], ...] = ()
    """New descriptions, as in request files, for jobs that are run again."""
    release: bool = False
    """Whether all held jobs are released."""


class UsageError(Exception):
    """The service cannot be started like this; the message says what to change."""
