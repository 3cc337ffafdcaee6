"""How a manager was asked to run: what the commands fill in, and what a resumed run takes up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

NodeSource = Literal["auto", "local", "slurm"]
StartMethod = Literal["slurm", "ssh"]
ReportFormat = Literal["text", "json", "none"]


class Options(Struct, frozen=True, omit_defaults=True):
    wd: str = "."
    id: str | None = None
    file_path: str | None = None
    """Requests to run."""
    net: bool = False
    """Open the network interface."""
    net_port: str = "*"
    """For requests: a port, a range `2222-9999`, or any."""
    net_pub_port: str = "*"
    """For events."""
    insecure_net: bool = False
    """Without keys: for clients that know none, open to everybody on this host."""
    wait: bool = False
    """Wait for all jobs even when the request file does not ask for it."""
    nodes: str | None = None
    """Pretended nodes of this machine."""
    resources: NodeSource = "auto"
    """Where nodes come from."""
    envschema: str = "auto"
    report_format: ReportFormat = "text"
    report_file: str = "jobs.report"
    log: str = "info"
    system_core: bool = False
    share_cores: bool = False
    """Use all cores of this host, also those that other runs have claimed."""
    no_bind: bool = False
    """Bind no job to cores, and claim none."""
    show_progress: bool = False
    rerun_lost: bool = False
    keep_output: bool = False
    """Save the output of jobs that succeed, too."""
    patience: float = 600.0
    """Seconds after which a request that is never served is not overtaken any more."""
    linger: float = 600.0
    """Seconds that an agent waits for a manager after its last job."""
    node_timeout: float = 25.0
    """Seconds of silence after which a node counts as lost."""
    nl_init_timeout: float = 600.0
    """Seconds for the agents of an allocation's nodes to connect."""
    nl_ready_threshold: float = 1.0
    """The part of them that has to be there before jobs are started."""
    nl_start_method: StartMethod = "slurm"
    """How they are started."""
    slurm_limit_nodes_range_begin: int | None = None
    """The first node of the allocation to use, counted from 0; None: the first of all."""
    slurm_limit_nodes_range_end: int | None = None
    """The node of the allocation before which to stop; None: all up to the last."""
    time_limit: float | None = None
    """Seconds after which this manager ends, and another one can go on."""
    grace: float | None = None
    """Seconds before that, or before the end of the allocation, in which nothing is started; None: a minute or less."""
    grace_signal: str | None = None
    """What running jobs get then."""
    pretend: bool = False
    """Start no processes: jobs end at once. To measure everything else."""


DEFAULT_GRACE = 60.0
"""Seconds of the grace period without `--grace`."""
LARGEST_DEFAULT_PART = 0.1
"""The largest part of the whole time that the default grace period takes."""


def grace_period(grace: float | None, seconds: float) -> float:
    """Seconds before the end in which no job is started: `--grace`, or the default for `seconds` in all."""
    return min(DEFAULT_GRACE, LARGEST_DEFAULT_PART * seconds) if grace is None else grace


class Resumption(Struct, frozen=True):
    """A run to take up again."""

    run_dir: Path
    changes: dict[str, Any]
    """Options that are other than they were."""
    anew: bool = False
    """It is given something to do: that an earlier manager was told to end does not count any more."""


class UsageError(Exception):
    """The service cannot be started like this; the message says what to change."""
