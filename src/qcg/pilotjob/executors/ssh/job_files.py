"""The interface for files of remote jobs: inputs staged before a start, outputs and logs copied after an end."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qcg.pilotjob.executors.ssh.commands import Control
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.host.records import Ended, EndReason, Launch

log = logging.getLogger(__name__)


class ConnectedHost(NamedTuple):
    """A host with a connection, as other commands than the channel need it."""

    config: HostConfig
    address: str
    control: Control
    """For ssh and rsync commands other than the channel."""
    run: str
    """The run directory there, relative to the home directory or absolute, as rsync takes it."""
    run_dir: str
    """The run directory there, absolute."""
    shared: bool
    """Whether this machine sees the same run directory, so that nothing need be copied."""
    log: str = ""
    """The log directory of this start of the run, such as `log.20180418T025047Z`."""


class LostLogs(NamedTuple):
    """Logs that could not be retrieved, in a copy that is not repeated."""

    attempts: int
    """Their number."""
    reason: str
    """A sentence."""


class JobFiles(ABC):
    """Copies files of jobs.

    `stage_in` and `after_end` raise `ConnectionProblem` when the connection is lost, or when a copy failed for a reason
    that is not the fault of a single job. The caller repeats the call."""

    def needs_inputs(self, launch: Launch) -> bool:
        """Whether `stage_in` has to be called before this launch is sent."""
        return False

    @abstractmethod
    async def stage_in(self, host: ConnectedHost, launches: Sequence[Launch]) -> Mapping[str, str]:
        """Copy the inputs of these launches. Returns a sentence for each launch whose copy failed, by id."""

    def launched(self, launch: Launch) -> None:
        """A launch is sent: remember the files to copy after its end."""
        return

    def holds_end(self, ended: Ended) -> bool:
        """Whether `after_end` has to return before this end is reported, because others wait for the outputs."""
        return False

    def follows_end(self, ended: Ended) -> bool:
        """Whether `after_end` has to be called for an end that is reported at once, as for logs."""
        return False

    @abstractmethod
    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        """Copy outputs and logs of these attempts. Returns the ends to report, with a message where copying failed."""

    def take_lost_logs(self) -> list[LostLogs]:
        """Logs that `after_end` could not retrieve since the last call."""
        return []


def with_problem(end: Ended, problem: str) -> Ended:
    """The end of an attempt whose outputs are incomplete: one that had succeeded has failed."""
    if not problem:
        return end
    if end.reason == EndReason.EXIT and end.exit_code == 0:
        return end._replace(reason=EndReason.STAGING, message=problem)
    log.info("%s did not succeed: %s", end.id, problem)
    return end  # its own failure is the reason to tell


class NoJobFiles(JobFiles):
    """Copies nothing."""

    async def stage_in(self, host: ConnectedHost, launches: Sequence[Launch]) -> Mapping[str, str]:
        return {}

    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        return ended
