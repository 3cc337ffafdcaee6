"""The activity of a run since its manager began: utilisation, rates and failures, sampled from counters of the core.

A sample is taken soon after something has changed: an idle manager takes none, and a busy one two a second, whatever
the number of jobs.
"""

from __future__ import annotations

import asyncio
import time

from qcg.pilotjob.core.core_state import CoreState
from qcg.pilotjob.core.effects import Transition
from qcg.pilotjob.manager.observers import RunObserver
from qcg.pilotjob.report.failure_groups import FailureGroups
from qcg.pilotjob.report.history import HistoryBins
from qcg.pilotjob.report.rates import RateWindow
from qcg.pilotjob.report.run_summary import Rates

PAUSE = 0.5
"""Seconds from a change to the next sample."""
FIRST_PAUSE = 0.05
"""Seconds from the first change after a quiet time to the next sample."""


class Activity(RunObserver):
    def __init__(self, state: CoreState) -> None:
        self.began = time.time()
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._changed_at = self.began
        """Time of the first change after the last sample: the last value is right until then."""
        self._sampled_at = self.began
        self._taken = 0
        self._starts = self._ends = 0
        self._failed = 0
        """Attempts that have failed, and whose jobs failed with them."""
        self._failed_before = 0
        """All failed attempts at the last sample, with those that were repeated."""
        self.bins: HistoryBins | None = None
        """The history since the first submission to this manager; None before it."""
        self._rates = RateWindow(self.began)
        self.failures = FailureGroups()
        self.outdated = False
        """Failures were forgotten: their jobs were removed, or run again."""
        self.past_is_missing = False
        """The history of earlier managers was not read yet."""
        self.granted = 0.0
        """Core-seconds that attempts held so far."""
        self.all_done_at: float | None = None
        """When the last job became final, under this manager."""

    def turned(self) -> None:
        """Something may have changed. Called once a turn, so that it must cost nothing."""
        if self._timer is None:
            self._changed_at = time.time()
            is_busy = self._changed_at - self._sampled_at < 2 * PAUSE
            self._timer = self._loop.call_later(PAUSE if is_busy else FIRST_PAUSE, self._sample_later)

    def failed(self, transition: Transition) -> None:
        job, position = transition.job, transition.position
        if position >= 0 or job.iterations is None:
            self._failed += transition.attempt is not None
            self.failures.add(transition.message, (job.seq, position))

    def all_done(self) -> None:
        self.all_done_at = time.time()

    def forget_failures(self) -> None:
        """Some of the failures are not part of the run any more."""
        self.outdated = self.outdated or bool(self.failures)

    def begin_with_past(self) -> None:
        """The run began under an earlier manager: its registry has the rest of its history."""
        self.past_is_missing = self.outdated = True

    def add_past(self, past: HistoryBins | None, failures: FailureGroups) -> None:
        """Put the history of earlier managers before that of this one."""
        self.past_is_missing = False
        self.replace_failures(failures)
        if past is not None:
            if self.bins is not None:
                past.merge(self.bins)
            self.bins = past

    def replace_failures(self, failures: FailureGroups) -> None:
        self.failures = failures
        self.outdated = False

    def rates(self, now: float) -> Rates | None:
        return self._rates.rates(now)

    def sample(self) -> None:
        """Bring the history up to date."""
        state, now = self._state, time.time()
        taken, starts = state.pool.taken_cores, state.starts
        ends, failed = starts - state.executing, self._failed + state.failed_and_repeated
        if self.bins is None and state.jobs:
            self.bins = HistoryBins(max(next(iter(state.jobs.values())).submitted, self.began))
        cores = state.pool.total_cores
        changed = min(max(self._changed_at, self._sampled_at), now)
        before, after = changed - self._sampled_at, now - changed
        # Until the first change nothing has changed, and then the average is as good a guess as any.
        self.granted += self._taken * before + (self._taken + taken) / 2 * after
        if self.bins is not None:
            self.bins.add_use(self._sampled_at, changed, self._taken, cores)
            self.bins.add_use(changed, now, (self._taken + taken) / 2, cores)
            self.bins.count(now, starts - self._starts, ends - self._ends, failed - self._failed_before)
        self._rates.add(now, starts, ends)
        self._sampled_at = self._changed_at = now
        self._taken, self._starts, self._ends, self._failed_before = taken, starts, ends, failed

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample_later(self) -> None:
        self._timer = None
        self.sample()
