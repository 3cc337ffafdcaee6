"""A lane runner in C: threads start the next job of a lane as soon as the one before it has succeeded.

Python receives handovers in batches and records them, so that a job costs little more than its process.
"""

from __future__ import annotations

import itertools
import os
from json.encoder import encode_basestring_ascii as quoted

from qcg.pilotjob.agent import _relay
from qcg.pilotjob.agent.process_limits import available_processes
from qcg.pilotjob.host.captured_output import highest_descriptor, memory_file_flags
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.lane_runner import Handover, LaneRunner, Offer
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.ledger_format import SUCCEEDED
from qcg.pilotjob.host.spawn import open_null_above_standard_streams

INTERFACE = 5
if getattr(_relay, "INTERFACE", 1) != INTERFACE or _relay.SUCCEEDED_LINE != SUCCEEDED:
    raise ImportError(f"{_relay.__file__} was compiled for another version; compile it again with make setup")

PROCESSES_PER_THREAD = 8
"""One relay thread is allowed per this many processes of the limit: the others are for jobs."""


class RelayLaneRunner(LaneRunner):
    def __init__(self, ledger: Ledger, *, wakeup: int, pause: float, open_files: int = 0) -> None:
        """`wakeup`: a descriptor to which the relay writes SIGCHLD, because the kernel does not signal it any more, and
        zero when there are handovers. `open_files`: the soft limit of open files of jobs; 0: that of this process."""
        self.lane_names: dict[int, str] = {}
        """By number, including released lanes until all their handovers are taken."""
        self.pause = pause
        self._ledger = ledger
        self._numbers: dict[str, int] = {}
        """Numbers of the lanes that the relay has, by name."""
        self._next_number = itertools.count(1)
        self._released: list[int] = []
        """Numbers of lanes released since the last `take`."""
        self._finished: list[int] = []
        """Numbers of lanes whose last handovers were in the last `take`."""
        self._most_lanes = available_processes() // PROCESSES_PER_THREAD
        self._null = open_null_above_standard_streams()
        try:
            _relay.open(wakeup, self._null, memory_file_flags(), highest_descriptor(), open_files)
        except OSError:
            os.close(self._null)
            raise

    def hold(self, held: bool) -> None:
        _relay.hold(held)

    def hold_after(self, moment: float) -> None:
        _relay.hold_after(moment)

    def lanes(self) -> list[str]:
        return list(self._numbers)

    def has_lane(self, lane: str) -> bool:
        return lane in self._numbers

    def accepts(self, lane: str) -> bool:
        return lane in self._numbers or len(self._numbers) < self._most_lanes

    def offer(self, lane: str, job: ActiveJob, offers: list[Offer]) -> bool:
        number = self._numbers.get(lane)
        try:
            if number is not None:
                return _relay.offer(number, self._ledger.descriptor, offers)
            number = self._numbers[lane] = next(self._next_number)
            self.lane_names[number] = lane
            id = quoted(job.id).encode("ascii")
            stdout, stderr = (-1, -1) if job.output is None else (job.output.stdout, job.output.stderr)
            start, ledger = job.start, self._ledger.descriptor
            return _relay.watch(number, start.pid, id, start.at, stdout, stderr, ledger, offers)
        except ValueError:
            # A zero byte in a text: the job host starts the job and reports that.
            return False

    def release(self, lane: str) -> None:
        number = self._numbers.pop(lane, None)
        if number is not None:
            _relay.give_up(number)
            self._released.append(number)

    def pending(self) -> bool:
        return _relay.pending()

    def take(self) -> list[Handover]:
        for number in self._finished:
            del self.lane_names[number]
        self._finished, self._released = self._released, []
        return _relay.take()

    def suspend(self) -> None:
        _relay.heard()
        _relay.enter()

    def suspend_within(self, seconds: float) -> bool:
        return _relay.enter_within(seconds)

    def resume(self) -> None:
        _relay.leave()

    def reaps(self, pid: int) -> bool:
        return _relay.watches(pid)

    def close(self) -> None:
        _relay.close()
        os.close(self._null)
