"""What `info_parsed` returns, as programs for version 0.2 import it."""

from __future__ import annotations

from qcg.pilotjob.api.jobinfo import JobInfo

__all__ = ["JobInfo"]
