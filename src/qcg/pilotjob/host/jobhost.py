"""Starts, watches and ends jobs, without a loop and without waiting: its driver calls `advance`, `reap` and `due`."""

import contextlib
import ctypes
import math
import os
import signal
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Set, Tuple

from qcg.pilotjob.host import tree
from qcg.pilotjob.host.ending import Ending, EndingOfAll, Endings, is_first_process, may_be_ended
from qcg.pilotjob.host.files import LaunchFiles
from qcg.pilotjob.host.job import JobUnderWay
from qcg.pilotjob.host.lanes import Lanes
from qcg.pilotjob.host.ledger import Ledger, Opened, Record
from qcg.pilotjob.host.output import Outputs
from qcg.pilotjob.host.records import Ended, Launch, Running
from qcg.pilotjob.host.signalling import pass_on
from qcg.pilotjob.host.spawn import Spawner, read_report
from qcg.pilotjob.host.start_errors import NoRoom, Room, TooLate, Unstartable
from qcg.pilotjob.host.walltimes import WallTimes

DEFAULT_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""

_ALREADY_GONE = contextlib.suppress(ProcessLookupError, PermissionError)
_PR_SET_CHILD_SUBREAPER = 36
_EVERYTHING = ""
"""Key of the ending that takes whatever the jobs have left behind; no job has an empty id."""
_OWN_ENDS = ("exit", "cancel", "timeout")
"""Reasons of ends that are final. The output of a job that may run again is not saved: its file system may hang."""
_SWEEP = "sweep "
"""Before the id, the key of an ending of what is not a job of this host."""


class JobHost:
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
    ) -> None:
        """`doubt`: seconds in which it may turn out that whoever has ended a job from outside ends this host as well,
        as batch systems do. Then the job did not fail. `output`: the directory of saved output. `open_files`: the soft
        limit of open files that jobs get; 0: the limit of this process."""
        self._ledger = ledger
        self._instance = instance
        self._grace = grace
        self._log = log
        self._doubt = doubt
        self._doubtful: Deque[Tuple[float, JobUnderWay]] = deque()
        """Those that have ended like that, and until when nobody is told."""
        self._spawner = Spawner(log, self._is_too_late, open_files)
        self._files = LaunchFiles(files)
        self._outputs = Outputs(output, log)
        self._queue: Deque[Launch] = deque()
        self._queued: Dict[str, Launch] = {}
        """All that are taken on and not started, those that wait in a lane too."""
        self._lanes = Lanes()
        self._gave_cores_back = False
        self._room = Room()
        self._jobs: Dict[str, JobUnderWay] = {}
        self._by_pid: Dict[int, JobUnderWay] = {}
        self._wall_times = WallTimes()
        self._endings = Endings()
        self._finish: Optional[Tuple[str, str]] = None
        self.cut_off = ""
        """Why whatever ends from now on counts as lost; empty when it does not. Another thread may set it."""
        self.may_start_until = math.inf
        """Monotonic seconds: nothing is started after that. Another thread may set it."""
        self._sweeping: Set[str] = set()
        self._swept: List[str] = []
        self._leaving: List[Tuple[str, List[str], float]] = []
        self._adopt_orphans()
        self._end_lost_jobs()

    # Orders

    def start(self, launches: List[Launch]) -> List[str]:
        """Take these on; `advance` starts them. The ids that are refused, because they were taken on before."""
        refused = []
        for launch in launches:
            id = launch.id
            if id in self._jobs or id in self._queued or self._ledger.knows(id):
                refused.append(id)
            elif self._finish is not None:
                self._never_started(id, *self._finish)
            else:
                first = launch.lane
                if not first or not self._lanes.wait(launch, first in self._jobs or first in self._queued):
                    self._queue.append(launch)
                self._queued[id] = launch
        return refused

    def kill(self, ids: List[str], reason: str = "cancel", message: str = "") -> None:
        """End these and all their processes. Ids that are not under way are passed over."""
        self.reap()
        for id in ids:
            if id in self._queued:
                self._drop(id, reason, message)
            elif id in self._jobs:
                self._end(self._jobs[id], reason, message, self._grace)

    def retract(self, ids: List[str]) -> None:
        """Take back those that wait for others in their lane; ids of any other job are passed over."""
        for id in ids:
            if id in self._lanes:
                self._drop(id, "closed", "")

    def signal(self, ids: List[str], number: int) -> None:
        """Give a signal to those of their processes that catch it."""
        self.reap()
        pass_on([self._jobs[id].start for id in ids if id in self._jobs], number)

    def sweep(self, marks: Dict[str, str], grace: float = 0.0) -> None:
        """End what carries these marks: the part on this machine of jobs that others have started.

        By id; `take_swept` tells of which nothing is left.
        """
        for id, mark in marks.items():
            self._sweeping.add(id)
            self._endings.begin(_SWEEP + id, Ending(Opened(mark, -1, 0.0, [], 0, 0), time.monotonic() + grace))

    def finish(self, grace: float, reason: str = "cancel", message: str = "") -> None:
        """End everything; nothing is started any more. Again with a shorter `grace`: sooner."""
        self.reap()
        self._finish = (reason, message)
        while self._queued:
            self._never_started(self._queued.popitem()[0], reason, message)
        self._queue.clear()
        self._lanes.clear()
        while self._doubtful:
            _, job = self._doubtful.popleft()
            job.reason, job.message = reason, message
            self._over(job)
        for job in self._jobs.values():
            self._end(job, reason, message, grace)
        kill_at = time.monotonic() + grace
        self._endings.begin(_EVERYTHING, EndingOfAll(kill_at))
        self._endings.kill_by(kill_at)

    def lose_all(self) -> None:
        """End everything at once, as lost. Those not started yet are forgotten: nobody was told of them, but for one
        that would have started by now, had there been room or time."""
        self.reap()
        for id in [id for id in self._queued if id in self._ledger.open]:
            self._never_started(id, "closed", "")
        self._queued.clear()
        self._queue.clear()
        self._lanes.clear()
        for job in self._jobs.values():
            self._end(job, "lost", self.cut_off, 0.0)
        self._endings.kill_by(time.monotonic())

    # The driver's turns

    def advance(self, limit: int = 16) -> bool:
        """Start up to `limit` of the jobs taken on. Whether more could be started at once."""
        queue, queued = self._queue, self._queued
        self._room.retry_at = None
        if queue and self._is_too_late():
            return False
        while queue and limit > 0:
            launch = queue[0]
            if launch.id in queued:
                if not self._note_start(launch):
                    return False
                del queued[launch.id]
                try:
                    self._start(launch)
                except (NoRoom, TooLate):
                    # It keeps its place, and its cores.
                    queued[launch.id] = launch
                    return False
                limit -= 1
            queue.popleft()
        return bool(queue)

    def children_ended(self) -> None:
        """To be called on SIGCHLD."""
        self.reap()

    def reap(self, is_for_others: Callable[[int], bool] = lambda pid: False) -> None:
        """Take in every child that has ended, up to one that is left to others: it hides the rest."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None or is_for_others(child.si_pid):
                return
            pid = child.si_pid
            job = self._by_pid.pop(pid, None)
            if job is not None and job.reason == "exit" and self.cut_off:
                job.reason, job.message = "lost", self.cut_off
            if job is not None and job.reason == "exit":
                # While the dead leader is not reaped, its process group can be no other.
                with _ALREADY_GONE:
                    os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            if job is not None:
                self._reaped(job, child.si_status if child.si_code == os.CLD_EXITED else -child.si_status)

    def due(self, now: float) -> None:
        """Do what time asks for: wall times, and the next step of every ending. `now` is monotonic."""
        if self._wall_times.is_one_over(now):
            self.reap()
            self._end_overdue(now)
        while self._doubtful and self._doubtful[0][0] <= now:
            self._over(self._doubtful.popleft()[1])
        if self._outputs.next_look is not None and self._outputs.next_look <= now:
            self._look_at_outputs(now)
        next_look = self._endings.next_look()
        if next_look is not None and next_look <= now:
            self.reap()
            for key, left in self._endings.look(now):
                self._tree_over(key, left)

    def next_deadline(self) -> Optional[float]:
        """When `due` has to be called next, in monotonic seconds."""
        doubt = self._doubtful[0][0] if self._doubtful else None
        times = (
            self._wall_times.next(self._jobs),
            doubt,
            self._endings.next_look(),
            self._room.retry_at,
            self._outputs.next_look,
        )
        return min((at for at in times if at is not None), default=None)

    # Answers

    @property
    def busy(self) -> bool:
        """Whether anything is under way, also the ending of what jobs left behind."""
        return bool(self._jobs or self._queued or self._sweeping or _EVERYTHING in self._endings)

    @property
    def trouble(self) -> str:
        """Why no job is started at present, as a sentence; empty when all is well."""
        return self._ledger.trouble

    @property
    def can_go_on(self) -> bool:
        """All cores that jobs have left since records were taken have others by now: nobody is in a hurry to know."""
        return bool(self._lanes) and not self._gave_cores_back

    def running(self) -> List[Running]:
        """All jobs whose end no record tells yet; those not started yet have pid 0."""
        live = [Running(job.id, job.start.pid, job.start.at, job.start.grant) for job in self._jobs.values()]
        live += [Running(launch.id, 0, 0.0, launch.grant) for launch in self._queued.values()]
        return live + self._ledger.closing()

    def take_records(self) -> List[Tuple[int, Record]]:
        """Numbered records since the last call, all of them in the ledger: the others come when they are, too."""
        self._gave_cores_back = False
        self._ledger.flush()
        return self._ledger.untold()

    def take_leaving(self) -> List[Tuple[str, List[str], float]]:
        """Jobs whose ending has begun since the last call and that have other nodes, with these and their grace."""
        leaving, self._leaving = self._leaving, []
        return leaving

    def take_swept(self) -> List[str]:
        swept, self._swept = self._swept, []
        return swept

    def report(self) -> Tuple[List[Tuple[int, Record]], List[Running]]:
        """All that a manager may not know: records that are not acknowledged, and jobs under way besides."""
        self._ledger.flush()
        return self._ledger.unacknowledged(), self.running()

    def close(self) -> None:
        """Give back descriptors; for a driver that goes on living without its host."""
        for job in self._jobs.values():
            if job.report >= 0:
                os.close(job.report)
            if job.output is not None:
                job.output.close()
        self._spawner.close()

    # Start and end of one job

    def _is_too_late(self) -> bool:
        return time.monotonic() >= self.may_start_until

    def _note_start(self, launch: Launch) -> bool:
        """Before it: whatever happens then, it may have run."""
        return self._ledger.starting(launch.id, launch.env.get(tree.MARKER, ""), launch.grant)

    def _start(self, launch: Launch) -> None:
        since = tree.ticks_now()
        own_files = False
        captured = self._outputs.capture(launch)
        try:
            if launch.files:
                own_files = self._files.write(launch.id, launch.files)
            at = time.time()  # before it begins: nothing may seem to have run for less time than it has
            pid, report = self._spawner.start(launch, captured)
        except Unstartable as error:
            if captured is not None:
                captured.close()
            if launch.files:
                self._files.remove(launch.id)
            if isinstance(error, TooLate) or (isinstance(error, NoRoom) and self._room.may_come(bool(self._jobs))):
                raise
            self._never_started(launch.id, "unstartable", str(error))
            self._let_next_in(launch.id)
            return
        self._room.is_there()
        opened = Opened(launch.env.get(tree.MARKER, ""), pid, at, launch.grant, since, tree.ticks_now())
        self._began(launch, JobUnderWay(launch.id, opened, report, own_files, captured))

    def _began(self, launch: Launch, job: JobUnderWay) -> None:
        self._jobs[job.id] = self._by_pid[job.start.pid] = job
        self._ledger.started(job.id, job.start)
        if launch.wall_time is not None:
            began = time.monotonic() - tree.seconds_since(job.start.until)
            self._wall_times.begin(job.id, began, launch.wall_time, self._jobs)
        if job.output is not None:
            self._outputs.began()

    def _look_at_outputs(self, now: float) -> None:
        self._outputs.look([job.output for job in self._jobs.values() if job.output is not None], now)

    def _reaped(self, job: JobUnderWay, exit_code: int) -> None:
        job.exit_code = exit_code
        if job.id in self._endings:
            self._endings.hurry()
        elif self._doubt and may_be_ended(exit_code, job.start):
            self._doubtful.append((time.monotonic() + self._doubt, job))
        else:
            self._over(job)

    def _drop(self, id: str, reason: str, message: str) -> None:
        """It was taken on, and is not started."""
        del self._queued[id]
        if id in self._lanes:
            self._lanes.drop(id)
        else:
            self._let_next_in(id)
        self._never_started(id, reason, message)

    def _never_started(self, id: str, reason: str, message: str) -> None:
        self._ledger.ended(Ended(id, time.time(), -1, reason, message, 0, 0.0))

    def _over(self, job: JobUnderWay) -> None:
        del self._jobs[job.id]
        message = job.message or read_report(job.report)
        if job.report >= 0:
            os.close(job.report)
        if job.files:
            # Before the ledger has its end: an agent that is killed in between leaves them to the next one.
            self._files.remove(job.id)
        start, code = job.start, -1 if job.exit_code is None else job.exit_code
        if job.output is not None:
            # Before anybody is told of the end, and looks for it.
            if job.output.keep if code == 0 and job.reason == "exit" else job.reason in _OWN_ENDS:
                self._outputs.save(job.output, job.id)
            job.output.close()
        self._ledger.ended(Ended(job.id, time.time(), code, job.reason, message, start.pid, start.at, start.grant))
        self._let_next_in(job.id)

    def _let_next_in(self, id: str) -> None:
        """`id` has left its cores to whoever waits for them."""
        launch = self._lanes.next(id)
        if launch is not None:
            self._queue.append(launch)
        else:
            self._gave_cores_back = True

    def _end(self, job: JobUnderWay, reason: str, message: str, grace: float) -> None:
        if job.id in self._endings or job.exit_code is not None:
            return
        job.reason, job.message = reason, message
        self._endings.begin(job.id, Ending(job.start, time.monotonic() + grace))
        if len(job.start.grant) > 1:
            self._leaving.append((job.id, [node for node, _, _ in job.start.grant[1:]], grace))

    def _end_overdue(self, now: float) -> None:
        for id, wall_time in self._wall_times.take(now):
            job = self._jobs.get(id)
            if job is not None:
                self._end(job, "timeout", "The wall time of %g s is over." % wall_time, self._grace)

    def _tree_over(self, key: str, left: List[int]) -> None:
        job = self._jobs.get(key)
        if job is not None and self._by_pid.get(job.start.pid) is job and not left:
            # Its first process is dead but not reaped yet: the next SIGCHLD brings the exit code.
            return
        self._endings.drop(key)
        if left:
            staying = "Processes %s do not end, even after SIGKILL." % ", ".join(map(str, left))
            self._log(staying)
        if key.startswith(_SWEEP):
            self._sweeping.discard(key[len(_SWEEP) :])
            self._swept.append(key[len(_SWEEP) :])
        if job is not None:
            if left:
                job.message = (job.message + " " + staying).strip()
                self._by_pid.pop(job.start.pid, None)
            self._over(job)

    # What another life of this host left

    def _adopt_orphans(self) -> None:
        """Children whose parents die become mine: they can be reaped, and found at the end."""
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            self._log("This kernel gives orphans to init: %s." % os.strerror(ctypes.get_errno()))

    def _end_lost_jobs(self) -> None:
        why = "The agent %s that ran this job was killed; what was left of the job has been ended" % self._instance
        why += ", and its output is lost, as far as it was not written to files."
        why_unsure = "The agent %s was killed while it started this job; it may or may not have run." % self._instance
        for id, opened in self._ledger.open.items():
            job = self._jobs[id] = JobUnderWay(id, opened, -1, files=True)
            job.reason, job.message = "lost", why if opened.pid else why_unsure
            first = tree.look_at(opened.pid) if opened.pid else None
            if first is None or not is_first_process(first, opened):
                # Its pid, and so the session of that number, may be anybody's by now.
                opened = opened._replace(pid=-1)
            self._endings.begin(id, Ending(opened, time.monotonic() + self._grace))
