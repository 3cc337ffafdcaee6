"""The job host: starts, watches and ends the jobs of one machine.

Its driver has the loop, and makes these calls in each turn, in this order:

1. `children_ended` after SIGCHLD, and orders that have arrived, such as `start` and `kill`: they may free lanes;
2. `turn`, which starts jobs in the lanes that are free by now;
3. `take_records`, or the ledger's `flush` while the records can wait.

`sync_ledger` waits for the disk: call it last, or with a lane runner before `turn`, which offers lanes again that a
compaction has taken back. Then wait until `next_deadline` or the ledger's `sync_due`; not at all if `turn` is True.

No call waits for a job to end. Most wait for file systems and for starts of the lane runner that are under way. Only
`cut_off` and `set_start_deadline` never wait, so that the thread of a fence can use them.
"""

import math
import os
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Tuple

from qcg.pilotjob.host import process_tree, termination
from qcg.pilotjob.host.cut_off import CutOff
from qcg.pilotjob.host.job import ActiveJob, lost_job
from qcg.pilotjob.host.job_limits import JobLimits
from qcg.pilotjob.host.job_setup import JobSetup
from qcg.pilotjob.host.lane_runner import LONGEST_SUSPENSION, HostLaneRunner, LaneRunner
from qcg.pilotjob.host.lanes import Lanes
from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.offered_lanes import OfferedLanes
from qcg.pilotjob.host.output_streams import OutputStreams
from qcg.pilotjob.host.reaping import ended_child, reap_first_process, reap_orphan
from qcg.pilotjob.host.records import STEP_ID, Ended, EndReason, Launch, RecordBody, Running, Usage
from qcg.pilotjob.host.start_errors import NoCapacity, StartDeadlinePassed, Unstartable
from qcg.pilotjob.host.usage import added

JOB_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL when one job is ended."""
END_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for all jobs when the process that drives the host gets a signal to end."""

_EVERYTHING = ""
"""Key of the termination of all descendants of this process; no job has an empty id."""


class JobHost:
    def __init__(
        self,
        ledger: Ledger,
        name: str,
        files: str,
        grace: float = JOB_GRACE,
        log: Callable[[str], None] = lambda line: None,
        verdict_delay: float = 0.0,
        output: str = "",
        open_files: int = 0,
        lane_runner: Optional[LaneRunner] = None,
        streams: Optional[OutputStreams] = None,
        kind: str = "agent",
        prepare: Optional[Callable[[Launch], Launch]] = None,
    ) -> None:
        """`files`, `output`: the directories of the files of launches and of saved output. `verdict_delay`: seconds to
        wait before a job that was killed from outside counts as failed. A batch system that ends an allocation kills
        jobs first and this host next, and then the job did not fail. `open_files`: the soft limit of open files of
        jobs; 0: that of this process. `lane_runner` starts the jobs of lanes; without one this host does. `streams`:
        the output streams; without them no launch may have one. `kind`: the process in which this host runs, for users.
        `prepare`: called right before each start; returns the launch to start, or raises Unstartable. A launch that has
        to wait for capacity is prepared again, before any other one."""
        self._ledger = ledger
        self._name = name
        self._kind = kind
        self._grace = grace
        self._log = log
        self._verdict_delay = verdict_delay
        self._undecided: Deque[Tuple[float, ActiveJob]] = deque()
        """Jobs killed from outside, each with the monotonic time from which on it counts as failed."""
        self._streams = OutputStreams("", name, -1, log) if streams is None else streams
        self._setup = JobSetup(files, output, log, self._is_start_deadline_over, open_files, self._streams, prepare)
        self._lanes = Lanes()
        self._runner = HostLaneRunner() if lane_runner is None else lane_runner
        self._offered = OfferedLanes(self._runner, self._lanes, self._setup.offers)
        self._handovers_taken_at = 0.0
        self._queue: Deque[Launch] = deque()
        """Launches to start next."""
        self._queued: Dict[str, Launch] = {}
        """Launches that are not started, including those that wait in a lane."""
        self._has_freed_cores = False
        self._jobs: Dict[str, ActiveJob] = {}
        self._by_pid: Dict[int, ActiveJob] = {}
        self._limits = JobLimits(grace, log)
        self._terminations = termination.Terminations()
        self._finish: Optional[Tuple[str, str]] = None
        self.cut_off = CutOff(self._runner.hold)
        self._start_deadline = math.inf
        self._multinode_ends: List[Tuple[str, List[str], float]] = []
        process_tree.adopt_orphans(log)
        self._end_lost_jobs()

    # Orders

    def start(self, launches: List[Launch]) -> List[str]:
        """Accept these launches; `advance` starts them. Returns the ids that are refused: they were accepted before."""
        refused = []
        for launch in launches:
            id = launch.id
            if id in self._jobs or id in self._queued or self._ledger.knows(id):
                refused.append(id)
            elif self._finish is not None:
                self._record_not_started(id, *self._finish)
            else:
                first = launch.lane
                if not first or not self._lanes.append(launch, first in self._jobs or first in self._queued):
                    self._queue.append(launch)
                self._queued[id] = launch
        self._offered.plan(launch.lane for launch in launches if launch.lane)
        return refused

    def kill(
        self, ids: List[str], reason: str = EndReason.CANCEL, message: str = "", grace: Optional[float] = None
    ) -> None:
        """End these jobs with all their processes. Other ids are ignored. `grace`: seconds between SIGTERM and SIGKILL,
        also for every job that is being ended already; None: as for all jobs of this host."""
        self._take_back_lanes_of(ids)
        self.reap()
        for id in ids:
            if id in self._queued:
                self._drop(id, reason, message)
            elif id in self._jobs:
                self._end(self._jobs[id], reason, message, self._grace if grace is None else grace)
        if grace is not None:
            self._terminations.kill_by(time.monotonic() + grace)

    def retract(self, ids: List[str]) -> None:
        """Take back launches that wait in a lane; ids of other jobs are ignored."""
        self._take_back_lanes_of(ids)
        for id in ids:
            if id in self._lanes:
                self._drop(id, EndReason.CLOSED, "")

    def signal(self, ids: List[str], number: int) -> None:
        """Send a signal to the processes of these jobs that have a handler for it."""
        self.reap()
        termination.send_signal([self._jobs[id].start for id in ids if id in self._jobs], number)

    def sweep(self, markers: Dict[str, str], grace: float = 0.0) -> None:
        """End the processes on this machine of jobs of other hosts, by marker. `take_swept` returns the result."""
        self._terminations.sweep(markers, time.monotonic() + grace)

    def finish(self, grace: float, reason: str = EndReason.CANCEL, message: str = "") -> None:
        """End all jobs and start no more. Call it again with a shorter `grace` to end them sooner."""
        self._take_back_all_lanes()
        self.reap()
        self._finish = (reason, message)
        while self._queued:
            self._record_not_started(self._queued.popitem()[0], reason, message)
        self._queue.clear()
        self._lanes.clear()
        while self._undecided:
            _, job = self._undecided.popleft()
            job.reason, job.message = reason, message
            self._over(job)
        for job in list(self._jobs.values()):
            self._end(job, reason, message, grace)
        kill_at = time.monotonic() + grace
        self._terminations.begin(_EVERYTHING, termination.TerminationOfAll(kill_at, self._streams.writers))
        self._terminations.kill_by(kill_at)

    def lose_all(self) -> None:
        """End all jobs at once, as lost. Launches that were not started are forgotten, because no manager has a record
        of them; but a launch whose start was tried and put off is recorded as not started."""
        self._take_back_all_lanes()
        self.reap()
        for id in [id for id in self._queued if id in self._ledger.open]:
            self._record_not_started(id, EndReason.CLOSED, "")
        self._queued.clear()
        self._queue.clear()
        self._lanes.clear()
        for job in list(self._jobs.values()):
            self._end(job, EndReason.LOST, self.cut_off.message, 0.0)
        self._terminations.kill_by(time.monotonic())

    def set_start_deadline(self, moment: float) -> None:
        """Start nothing after this monotonic time. Any thread may call this."""
        self._start_deadline = moment
        self._runner.hold_after(moment)

    # The driver's turns

    def turn(self, now: float, limit: int = 16) -> bool:
        """Do what is due, then start up to `limit` jobs. `now` is monotonic. Returns whether more could be started at
        once."""
        self.due(now)
        return self.advance(limit)

    def advance(self, limit: int = 16) -> bool:
        """Start up to `limit` of the accepted jobs. Returns whether more could be started at once."""
        if self._offered.planned and self._runner.pending():
            self._record_handovers()
        more = self._start_queued(limit)
        if self._ledger.write_error:
            if self._runner.lanes():
                self._take_back_all_lanes()
        elif self._offered.planned:
            self._offered.offer_planned(self._jobs)
        return more

    def _start_queued(self, limit: int) -> bool:
        queue, queued = self._queue, self._queued
        self._setup.capacity.start_again()
        if queue and self._is_start_deadline_over():
            return False
        while queue and limit > 0:
            launch = queue[0]
            if launch.id in queued:
                if not self._record_starting(launch):
                    return False
                del queued[launch.id]
                try:
                    self._start(launch)
                except (NoCapacity, StartDeadlinePassed):
                    # It keeps its turn, and its cores.
                    queued[launch.id] = launch
                    return False
                limit -= 1
            queue.popleft()
        return bool(queue)

    def children_ended(self) -> None:
        """To be called on SIGCHLD. Children of the lane runner are left to it: a lane whose job is reaped here has to
        be offered again. It signals SIGCHLD once more if it has hidden other children."""
        self.reap(self._runner.reaps)

    def reap(self, is_for_runner: Callable[[int], bool] = lambda pid: False) -> None:
        """Reap all children that have ended, up to the first one that is left to the lane runner: it hides the rest."""
        self._runner.suspend()
        try:
            self._record_handovers()
            while True:
                child = ended_child()
                if child is None or is_for_runner(child.si_pid):
                    return
                job = self._by_pid.pop(child.si_pid, None)
                if job is None:
                    reap_orphan(child.si_pid, self._by_pid)
                    self._streams.reaped(child.si_pid)
                    continue
                if job.reason == EndReason.EXIT and self.cut_off.message:
                    job.reason, job.message = EndReason.LOST, self.cut_off.message
                reap_first_process(child.si_pid, job)
                self._reaped(job, child.si_status if child.si_code == os.CLD_EXITED else -child.si_status)
        finally:
            self._runner.resume()

    def due(self, now: float) -> None:
        """Enforce limits, trim captured output and take the next step of every termination. `now` is monotonic."""
        if self._runner.pending():
            is_late = now >= self._handovers_taken_at + self._runner.pause
            if is_late or not self.records_can_wait:
                self._record_handovers()
        if self._limits.is_due(now):
            self.reap()
            for exceeded in self._limits.check(now, self._jobs):
                self._end(*exceeded)
        while self._undecided and self._undecided[0][0] <= now:
            self._over(self._undecided.popleft()[1])
        if self._streams.next_check is not None:
            for job in self._streams.take_stored(now):
                self._over(job)
        if self._setup.outputs.next_trim is not None and self._setup.outputs.next_trim <= now:
            self._trim_outputs(now)
        next_step = self._terminations.next_step()
        if next_step is not None and next_step <= now:
            self.reap()
            for key, left in self._terminations.step(now):
                self._tree_over(key, left)

    def next_deadline(self) -> Optional[float]:
        """When `due` has to be called next, in monotonic seconds."""
        undecided = self._undecided[0][0] if self._undecided else None
        handovers = self._handovers_taken_at + self._runner.pause if self._runner.pending() else None
        times = [self._limits.next_check(self._jobs), self._terminations.next_step(), undecided, handovers]
        times += [self._setup.capacity.retry_at, self._setup.outputs.next_trim, self._streams.next_check]
        return min((at for at in times if at is not None), default=None)

    def sync_ledger(self) -> None:
        """Bring the ledger to the disk; at most once a second."""
        self._ledger.sync(self._take_back_all_lanes)

    # Answers

    @property
    def busy(self) -> bool:
        """Whether there are jobs, or processes that jobs have left and that are being ended."""
        return bool(self._jobs or self._queued or self._terminations.sweeping or _EVERYTHING in self._terminations)

    @property
    def start_problem(self) -> str:
        """Why no job is started at present, as a sentence; empty when jobs can be started."""
        return self._ledger.write_error

    @property
    def records_can_wait(self) -> bool:
        """Every core freed since the last `take_records` has its next job: no manager has to schedule one."""
        return bool(self._lanes) and not self._has_freed_cores

    def running(self) -> List[Running]:
        """All jobs without a stored end; those not started yet have pid 0."""
        self._record_handovers()
        live = [Running(job.id, job.start.pid, job.start.at, job.start.grant) for job in self._jobs.values()]
        live += [Running(launch.id, 0, 0.0, launch.grant) for launch in self._queued.values()]
        return live + self._ledger.unstored_ends()

    def take_records(self) -> List[Tuple[int, RecordBody]]:
        """The numbered records since the last call, as far as the ledger has stored them."""
        self._has_freed_cores = False
        self._ledger.flush()
        return self._ledger.unreported()

    def take_multinode_ends(self) -> List[Tuple[str, List[str], float]]:
        """Jobs on several nodes whose termination has begun since the last call: id, the other nodes, grace period."""
        ends, self._multinode_ends = self._multinode_ends, []
        return ends

    def take_swept(self) -> List[str]:
        return self._terminations.take_swept()

    def report(self) -> Tuple[List[Tuple[int, RecordBody]], List[Running]]:
        """What a manager may not know: records that it has not acknowledged, and all jobs without a stored end."""
        self._record_handovers()
        self._ledger.flush()
        return self._ledger.unacknowledged(), self.running()

    def close(self) -> None:
        """Close all descriptors and remove cgroups, for a driver that continues without its host."""
        self._take_back_all_lanes()  # with the descriptors that the lane runner has opened
        self._runner.close()
        self._limits.close()
        self._setup.close(self._jobs.values())

    # Start and end of one job

    def _is_start_deadline_over(self) -> bool:
        return time.monotonic() >= self._start_deadline

    def _record_starting(self, launch: Launch) -> bool:
        return self._ledger.starting(launch.id, launch.env.get(STEP_ID, ""), launch.grant)

    def _start(self, launch: Launch) -> None:
        try:
            job = self._setup.start(launch, bool(self._jobs))
        except Unstartable as error:
            if isinstance(error, (NoCapacity, StartDeadlinePassed)):
                raise
            self._record_not_started(launch.id, EndReason.UNSTARTABLE, str(error))
            self._start_next_of_lane(launch.id)
        else:
            self._began(launch, job)

    def _began(self, launch: Launch, job: ActiveJob) -> None:
        self._jobs[job.id] = self._by_pid[job.start.pid] = job
        self._ledger.started(job.id, job.start)
        self._limits.begin(launch, job, self._jobs)
        if job.output is not None:
            self._setup.outputs.began()
        self._offered.job_started(job.id)

    def _trim_outputs(self, now: float) -> None:
        if not self._runner.suspend_within(LONGEST_SUSPENSION):
            self._setup.outputs.postpone(now)
            return
        try:
            # Descriptors of jobs that have succeeded are closed by the lane runner, and may be used for other files.
            self._record_handovers()
            self._setup.outputs.trim([job.output for job in self._jobs.values() if job.output is not None], now)
        finally:
            self._runner.resume()

    def _reaped(self, job: ActiveJob, exit_code: int) -> None:
        self._offered.take_back(self._lanes.lane_of(job.id))
        job.exit_code = exit_code
        if job.id in self._terminations:
            if job.may_have_succeeded and self._terminations.has_succeeded_before(job.id, exit_code):
                job.reason, job.message = EndReason.EXIT, ""
            self._terminations.step_soon()
        elif self._verdict_delay and termination.may_be_killed_from_outside(exit_code, job.start):
            self._undecided.append((time.monotonic() + self._verdict_delay, job))
        else:
            self._over(job)

    def _drop(self, id: str, reason: str, message: str) -> None:
        """Record the end of an accepted launch that was not started."""
        del self._queued[id]
        if id in self._lanes:
            self._lanes.remove(id)
        else:
            self._start_next_of_lane(id)
        self._record_not_started(id, reason, message)

    def _record_not_started(self, id: str, reason: str, message: str) -> None:
        self._ledger.ended(Ended(id, time.time(), -1, reason, message, 0, 0.0))

    def _over(self, job: ActiveJob) -> None:
        """Record the end of a job that has no processes any more, as soon as its output is stored."""
        if job.stream is not None and not self._streams.is_stored(job):
            return
        del self._jobs[job.id]
        self._limits.ended(job)
        message = self._setup.clean_up(job)
        start, code = job.start, -1 if job.exit_code is None else job.exit_code
        self._ledger.ended(
            Ended(job.id, time.time(), code, job.reason, message, start.pid, start.at, start.grant, job.usage)
        )
        self._start_next_of_lane(job.id)

    def _start_next_of_lane(self, id: str) -> None:
        """Job `id` has left its cores: queue the next job of its lane."""
        launch = self._lanes.start_next(id)
        if launch is not None:
            self._queue.append(launch)
        else:
            self._has_freed_cores = True

    def _end(self, job: ActiveJob, reason: str, message: str, grace: float) -> None:
        """Begin the termination of a job."""
        self._offered.take_back(self._lanes.lane_of(job.id))
        self._record_handovers()
        if self._jobs.get(job.id) is not job or job.id in self._terminations or job.exit_code is not None:
            return
        job.reason, job.message = reason, message
        self._terminations.begin(job.id, termination.Termination(job.start, time.monotonic() + grace))
        if len(job.start.grant) > 1:
            self._multinode_ends.append((job.id, [node for node, _, _ in job.start.grant[1:]], grace))

    def _tree_over(self, key: str, left: List[int]) -> None:
        job = self._jobs.get(key)
        if job is not None and self._by_pid.get(job.start.pid) is job and not left:
            # Its first process is dead but not reaped yet: the next SIGCHLD brings the exit code.
            return
        self._terminations.remove(key)
        if left:
            staying = "Processes %s do not end, even after SIGKILL." % ", ".join(map(str, left))
            self._log(staying)
        if job is not None:
            if left:
                job.message = (job.message + " " + staying).strip()
                self._by_pid.pop(job.start.pid, None)
            self._over(job)

    # Lanes of the lane runner

    def _take_back_lanes_of(self, ids: List[str]) -> None:
        """Take back the lanes of these jobs until `advance` offers them again."""
        queued, lane_of = self._queued, self._lanes.lane_of
        self._offered.take_back_for_now([queued[id].lane if id in queued else lane_of(id) for id in ids])
        self._record_handovers()

    def _take_back_all_lanes(self) -> None:
        self._offered.take_back_for_now(self._runner.lanes())
        self._record_handovers()

    def _record_handovers(self) -> None:
        """Record the jobs that the lane runner has reaped and started since the last call."""
        self._handovers_taken_at = time.monotonic()
        handovers = self._runner.take()
        if not handovers:
            return
        lane_names, lanes = self._runner.lane_names, self._lanes
        begun: Dict[str, Tuple[Launch, int, float, int, int, int, int]] = {}
        for number, ended_at, pid, at, since, until, stdout, stderr, counts in handovers:
            lane = lane_names[number]
            id = lanes.active_job(lane)
            usage = Usage._make(counts)
            if id in begun:
                before, ended, started = begun.pop(id)[:3]
                grant = before.grant
            else:
                job = self._jobs.pop(id)
                ended, started, grant = job.start.pid, job.start.at, job.start.grant
                # Another job may have this pid by now.
                if self._by_pid.get(ended) is job:
                    del self._by_pid[ended]
                usage = added(usage, job.usage)
            self._ledger.ended(Ended(id, ended_at, 0, EndReason.EXIT, "", ended, started, grant, usage))
            launch = lanes.start_next(id)
            assert launch is not None
            if pid:
                del self._queued[launch.id]
                begun[launch.id] = (launch, pid, at, since, until, stdout, stderr)
            else:
                self._queue.append(launch)
                self._offered.take_back(lane)
        for launch, pid, at, since, until, stdout, stderr in begun.values():
            self._began(launch, self._setup.adopt(launch, pid, at, since, until, stdout, stderr))

    # Jobs of an earlier process of this host

    def _end_lost_jobs(self) -> None:
        for id, start in self._ledger.open.items():
            self._jobs[id] = lost_job(id, start, self._kind, self._name)
            self._terminations.begin(id, termination.termination_of_earlier(start, time.monotonic() + self._grace))
