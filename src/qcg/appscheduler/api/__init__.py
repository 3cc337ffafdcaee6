"""`Manager`, `LocalManager` and `Jobs` as programs for version 0.2 import them."""

from __future__ import annotations

from qcg.appscheduler.api.job import Jobs
from qcg.appscheduler.api.manager import LocalManager, Manager

__all__ = ["Jobs", "LocalManager", "Manager"]
