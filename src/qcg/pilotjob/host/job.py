"""A job that a host has started and that is not over."""

from typing import Optional

from qcg.pilotjob.host.captured_output import CapturedOutput
from qcg.pilotjob.host.ledger import OpenStart
from qcg.pilotjob.host.records import EndReason, Usage
from qcg.pilotjob.host.streamed_output import StreamedOutput

_LOST = (
    "The %s %s that ran this job was killed; its remaining processes were killed; captured output is lost, output files"
    " are kept."
)
_LOST_WHILE_STARTING = "The %s %s was killed while it started this job; it may or may not have run."
_REBOOTED = "The machine was booted again while the %s %s ran this job; output files are kept."


def _lost_message(start: OpenStart, kind: str, name: str) -> str:
    if start.pid and not start.since:
        return _REBOOTED % (kind, name)  # the ledger forgets the start times of processes from before a boot
    return (_LOST if start.pid else _LOST_WHILE_STARTING) % (kind, name)


class ActiveJob:
    __slots__ = (
        "exit_code",
        "has_files",
        "id",
        "memory_limit",
        "message",
        "output",
        "reason",
        "report",
        "start",
        "stream",
        "usage",
    )

    def __init__(
        self,
        id: str,
        start: OpenStart,
        report: int,
        has_files: bool,
        output: Optional[CapturedOutput] = None,
        stream: Optional[StreamedOutput] = None,
    ) -> None:
        self.id = id
        self.start = start
        self.report = report
        """Descriptor to read the report of a setup wrapper from; -1 without one."""
        self.has_files = has_files
        """It may have files of its own, which have to be removed."""
        self.output = output
        self.stream = stream
        self.memory_limit = 0
        """KiB of memory that it may use; 0 without a limit."""
        self.reason = EndReason.EXIT
        self.message = ""
        self.exit_code: Optional[int] = None
        """Set once its first process is reaped. The job is over when all its processes are gone, too."""
        self.usage: Optional[Usage] = None
        """Resource usage of its reaped processes: orphans, and in the end its first process with all it has waited
        for."""

    @property
    def may_have_succeeded(self) -> bool:
        """Whether success before the first signal counts, although the job is being ended: it was not cancelled."""
        return self.reason in (EndReason.CLOSED, EndReason.MEMORY)

    @property
    def is_simple(self) -> bool:
        """Whether nothing but its end has to be recorded if it succeeds, so that a lane runner can do the rest."""
        if self.reason != EndReason.EXIT or self.exit_code is not None or self.has_files or self.report >= 0:
            return False
        if self.stream is not None or self.memory_limit:
            return False
        return self.output is None or not self.output.keep


def lost_job(id: str, start: OpenStart, kind: str, name: str) -> ActiveJob:
    """A job that an earlier process of its host has left. `kind`, `name`: kind and name of that process."""
    job = ActiveJob(id, start, -1, has_files=True)
    job.reason = EndReason.LOST
    job.message = _lost_message(start, kind, name)
    return job
