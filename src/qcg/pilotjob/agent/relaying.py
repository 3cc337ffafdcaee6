"""A host whose lanes go on by themselves: threads in C start the next job when the one before has succeeded.

Python is told later, of many at once, and keeps the books: so a job costs little more than its process. Everything but
the good way is left to Python. Before it changes anything in a lane, it takes the lane back from the relay.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quoted

from qcg.pilotjob.agent import _relay
from qcg.pilotjob.agent.process_limits import room_for_processes
from qcg.pilotjob.host.job import JobUnderWay
from qcg.pilotjob.host.jobhost import DEFAULT_GRACE, JobHost
from qcg.pilotjob.host.ledger import Ledger, Opened, Record, starting_line
from qcg.pilotjob.host.records import SHARED, Ended, Launch, Running
from qcg.pilotjob.host.start_errors import Unstartable
from qcg.pilotjob.host.tree import MARKER

INTERFACE = 3
if getattr(_relay, "INTERFACE", 1) != INTERFACE:
    raise ImportError(f"{_relay.__file__} was compiled for another version; compile it again, with make setup")

SHARE_OF_THREADS = 8
"""Of so many processes that this host may have, one may be a thread of the relay: the others are for jobs."""

LONGEST_WAIT = 0.05
"""Seconds to wait for starts under way before looking at captured output: a file system may hold them up."""


class RelayingHost(JobHost):
    def __init__(
        self,
        ledger: Ledger,
        instance: str,
        files: str,
        grace: float = DEFAULT_GRACE,
        log: Callable[[str], None] = lambda line: None,
        doubt: float = 0.0,
        output: str = "",
        open_files: int = 0,
        *,
        wakeup: int,
        pause: float,
    ) -> None:
        """`wakeup`: to this descriptor the relay writes SIGCHLD, which the kernel does not send any more, and zeros.
        `pause`: seconds between two looks at what it has done, as long as no core waits for work."""
        self._lane_numbers: dict[str, int] = {}
        """Of the lanes that the relay has; the names of other lanes are in none of these."""
        self._lane_names: dict[int, str] = {}
        """The other way round, also of those that it had, until all is taken that it has done there."""
        self._given_up: list[int] = []
        """The numbers of these."""
        self._offered: dict[str, int] = {}
        """How many of those that wait in such a lane the relay has."""
        self._to_offer: dict[str, None] = {}
        """Lanes with more for the relay."""
        self._most_lanes = room_for_processes() // SHARE_OF_THREADS
        self._numbers = itertools.count(1)
        self._pause = pause
        self._taken_at = 0.0
        super().__init__(ledger, instance, files, grace, log, doubt, output, open_files)
        ledger.before_replacing = self._take_all_back
        _relay.open(wakeup, self._spawner.null, self._outputs.memory_flags, self._outputs.highest, open_files)

    @property
    def cut_off(self) -> str:
        return self._cut_off

    @cut_off.setter
    def cut_off(self, why: str) -> None:
        self._cut_off = why
        _relay.hold(bool(why))

    @property
    def may_start_until(self) -> float:
        return self._may_start_until

    @may_start_until.setter
    def may_start_until(self, moment: float) -> None:
        self._may_start_until = moment
        _relay.hold_after(moment)

    # Orders: a lane that is changed is taken back before

    def start(self, launches: list[Launch]) -> list[str]:
        refused = super().start(launches)
        self._to_offer.update(dict.fromkeys(launch.lane for launch in launches if launch.lane))
        return refused

    def kill(self, ids: list[str], reason: str = "cancel", message: str = "") -> None:
        self._take_back(ids)
        super().kill(ids, reason, message)

    def retract(self, ids: list[str]) -> None:
        self._take_back(ids)
        super().retract(ids)

    def finish(self, grace: float, reason: str = "cancel", message: str = "") -> None:
        self._take_all_back()
        super().finish(grace, reason, message)

    def lose_all(self) -> None:
        self._take_all_back()
        super().lose_all()

    # The driver's turns

    def advance(self, limit: int = 16) -> bool:
        if self._to_offer and _relay.pending():
            self._take()
        more = super().advance(limit)
        if self._ledger.trouble:
            if self._lane_numbers:
                self._take_all_back()
        else:
            to_offer, self._to_offer = self._to_offer, {}
            for lane in to_offer:
                self._offer(lane)
        return more

    def children_ended(self) -> None:
        """A lane whose job is reaped here is lost, with all that is prepared for it. So they are left to the relay,
        which tells of whoever is hidden behind them."""
        self.reap(_relay.watches)

    def reap(self, is_for_others: Callable[[int], bool] = lambda pid: False) -> None:
        _relay.heard()
        _relay.enter()
        try:
            self._take()
            super().reap(is_for_others)
        finally:
            _relay.leave()

    def due(self, now: float) -> None:
        if _relay.pending() and (now >= self._taken_at + self._pause or not self.can_go_on):
            self._take()
        super().due(now)

    def next_deadline(self) -> float | None:
        deadline = super().next_deadline()
        if not _relay.pending():
            return deadline
        return self._taken_at + self._pause if deadline is None else min(self._taken_at + self._pause, deadline)

    def running(self) -> list[Running]:
        self._take()
        return super().running()

    def report(self) -> tuple[list[tuple[int, Record]], list[Running]]:
        self._take()
        return super().report()

    def close(self) -> None:
        self._take_all_back()  # with the descriptors that the relay has opened
        _relay.close()
        super().close()

    # Lanes that are given to the relay, and taken back

    def _offer(self, lane: str) -> None:
        waiting = self._lanes.behind(lane)[self._offered.get(lane, 0) :]
        job = self._jobs.get(self._lanes.under_way(lane))
        if not waiting or job is None or not self._is_plain(job):
            return
        number = self._lane_numbers.get(lane)
        if number is None and len(self._lane_numbers) >= self._most_lanes:
            return
        # First of all, because it takes longer than a short job does.
        offers = self._prepared(waiting)
        try:
            if number is not None:
                is_there = _relay.offer(number, self._ledger.descriptor, offers)
            else:
                number = self._lane_numbers[lane] = next(self._numbers)
                self._lane_names[number] = lane
                id = quoted(job.id).encode("ascii")
                out, err = (-1, -1) if job.output is None else (job.output.stdout, job.output.stderr)
                ledger = self._ledger.descriptor
                is_there = _relay.watch(number, job.start.pid, id, job.start.at, out, err, ledger, offers)
        except ValueError:
            # A zero byte somewhere. Whoever starts it will say so.
            is_there = False
        if is_there:
            self._offered[lane] = self._offered.get(lane, 0) + len(offers)
        else:
            self._forget(lane)

    def _prepared(self, launches: list[Launch]) -> list[_relay.Offer]:
        """Up to the first that only Python can start."""
        offers: list[_relay.Offer] = []
        for launch in launches:
            can_capture = not launch.output or (self._outputs.memory_flags >= 0 and not launch.keep_output)
            prepared = self._spawner.prepared(launch) if can_capture and self._has_its_files(launch) else None
            if prepared is None:
                break
            line = starting_line(launch.id, launch.env.get(MARKER, ""), launch.grant)
            offers.append((quoted(launch.id).encode("ascii"), line.encode("ascii"), *prepared))
        return offers

    def _has_its_files(self, launch: Launch) -> bool:
        """Those that are the same for many jobs are written now, and stay."""
        try:
            return all(name.startswith(SHARED) for name in launch.files) and not self._files.write("", launch.files)
        except Unstartable:
            return False

    def _is_plain(self, job: JobUnderWay) -> bool:
        is_kept = job.output is not None and job.output.keep
        return job.reason == "exit" and job.exit_code is None and not job.files and job.report < 0 and not is_kept

    def _forget(self, lane: str) -> None:
        number = self._lane_numbers.pop(lane, None)
        self._offered.pop(lane, None)
        if number is not None:
            _relay.give_up(number)
            self._given_up.append(number)

    def _take_back(self, ids: Iterable[str]) -> None:
        """The lanes of these jobs, until `advance` offers them again."""
        for id in ids:
            waiting = self._queued.get(id)
            lane = self._lanes.of(id) if waiting is None else waiting.lane
            if lane in self._lane_numbers:
                self._forget(lane)
                self._to_offer[lane] = None
        self._take()

    def _take_all_back(self) -> None:
        for lane in list(self._lane_numbers):
            self._forget(lane)
            self._to_offer[lane] = None
        self._take()

    # What it has done

    def _take(self) -> None:
        self._taken_at = time.monotonic()
        given_up, self._given_up = self._given_up, []
        begun: dict[str, tuple[Launch, int, float, int, int, int, int]] = {}
        for number, ended_at, pid, at, since, until, out, err in _relay.take():
            lane = self._lane_names[number]
            id = self._lanes.under_way(lane)
            if id in begun:
                before, ended, started = begun.pop(id)[:3]
                grant = before.grant
            else:
                job = self._jobs.pop(id)
                ended, started, grant = job.start.pid, job.start.at, job.start.grant
                # Another one may have this pid by now.
                if self._by_pid.get(ended) is job:
                    del self._by_pid[ended]
            self._ledger.ended(Ended(id, ended_at, 0, "exit", "", ended, started, grant))
            launch = self._lanes.next(id)
            assert launch is not None
            if pid:
                del self._queued[launch.id]
                begun[launch.id] = (launch, pid, at, since, until, out, err)
                if lane in self._offered:
                    self._offered[lane] -= 1
            else:
                self._queue.append(launch)
                self._forget(lane)
        for launch, pid, at, since, until, out, err in begun.values():
            opened = Opened(launch.env.get(MARKER, ""), pid, at, launch.grant, since, until)
            captured = self._outputs.captured(launch, out, err) if launch.output else None
            self._began(launch, JobUnderWay(launch.id, opened, -1, files=False, output=captured))
        for number in given_up:
            del self._lane_names[number]

    def _began(self, launch: Launch, job: JobUnderWay) -> None:
        super()._began(launch, job)
        lane = self._lanes.of(job.id)
        if lane not in self._lane_numbers:
            self._to_offer[lane] = None

    def _look_at_outputs(self, now: float) -> None:
        if not _relay.enter_within(LONGEST_WAIT):
            self._outputs.postpone(now)
            return
        try:
            self._take()  # the descriptors of jobs that have succeeded are closed by now, or used for other files
            super()._look_at_outputs(now)
        finally:
            _relay.leave()

    def _reaped(self, job: JobUnderWay, exit_code: int) -> None:
        self._forget(self._lanes.of(job.id))
        super()._reaped(job, exit_code)

    def _end(self, job: JobUnderWay, reason: str, message: str, grace: float) -> None:
        self._forget(self._lanes.of(job.id))
        self._take()
        if self._jobs.get(job.id) is job:
            super()._end(job, reason, message, grace)
