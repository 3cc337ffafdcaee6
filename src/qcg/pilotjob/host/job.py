"""A job that a host has started and that is not over."""

from typing import Optional

from qcg.pilotjob.host.captured_output import CapturedOutput
from qcg.pilotjob.host.ledger import OpenStart
from qcg.pilotjob.host.records import EndReason


class ActiveJob:
    __slots__ = ("exit_code", "has_files", "id", "message", "output", "reason", "report", "start")

    def __init__(
        self, id: str, start: OpenStart, report: int, has_files: bool, output: Optional[CapturedOutput] = None
    ) -> None:
        self.id = id
        self.start = start
        self.report = report
        """Descriptor to read the report of a setup wrapper from; -1 without one."""
        self.has_files = has_files
        """It may have files of its own, which have to be removed."""
        self.output = output
        self.reason = EndReason.EXIT
        self.message = ""
        self.exit_code: Optional[int] = None
        """Set once its first process is reaped. The job is over when all its processes are gone, too."""

    @property
    def is_simple(self) -> bool:
        """Whether nothing but its end has to be recorded if it succeeds, so that a lane runner can do the rest."""
        if self.reason != EndReason.EXIT or self.exit_code is not None or self.has_files or self.report >= 0:
            return False
        return self.output is None or not self.output.keep
