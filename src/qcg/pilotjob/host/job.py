"""A job that a host has started and that is not over."""

from typing import Optional

from qcg.pilotjob.host.ledger import Opened
from qcg.pilotjob.host.output import Captured


class JobUnderWay:
    __slots__ = ("exit_code", "files", "id", "message", "output", "reason", "report", "start")

    def __init__(self, id: str, start: Opened, report: int, files: bool, output: Optional[Captured] = None) -> None:
        self.id = id
        self.start = start
        self.report = report
        self.files = files
        """It may have files of its own, which have to be removed."""
        self.output = output
        self.reason = "exit"
        self.message = ""
        self.exit_code: Optional[int] = None
        """Set once its first process is reaped; the job is over when its tree is, too."""
