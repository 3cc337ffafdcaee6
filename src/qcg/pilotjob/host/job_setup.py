"""Sets jobs up and cleans up after them: their processes, the files of their launches and their captured output."""

import os
import time
from json.encoder import encode_basestring_ascii as quoted
from typing import Callable, Iterable, List, Optional

from qcg.pilotjob.host.captured_output import OutputCapture
from qcg.pilotjob.host.files import LaunchFiles
from qcg.pilotjob.host.job import ActiveJob
from qcg.pilotjob.host.lane_runner import Offer
from qcg.pilotjob.host.ledger import OpenStart
from qcg.pilotjob.host.ledger_format import starting_line
from qcg.pilotjob.host.output_streams import OutputStreams
from qcg.pilotjob.host.process_tree import ticks_now
from qcg.pilotjob.host.records import SHARED, STEP_ID, EndReason, Launch
from qcg.pilotjob.host.spawn import Spawner, read_report
from qcg.pilotjob.host.start_errors import NoCapacity, ProcessCapacity, Unstartable

_FINAL_REASONS = (EndReason.EXIT, EndReason.CANCEL, EndReason.TIMEOUT, EndReason.MEMORY)
"""End reasons after which a job is not restarted. The output of other jobs is not saved: the file system may
hang."""


class JobSetup:
    def __init__(
        self,
        files: str,
        output: str,
        log: Callable[[str], None],
        is_start_deadline_over: Callable[[], bool],
        open_files: int,
        streams: OutputStreams,
        prepare: Optional[Callable[[Launch], Launch]],
    ) -> None:
        """The parameters of `JobHost`, and its output streams."""
        self.capacity = ProcessCapacity()
        self.outputs = OutputCapture(output, log)
        self.streams = streams
        self._prepare = prepare
        self._files = LaunchFiles(files)
        self._spawner = Spawner(log, is_start_deadline_over, open_files)

    def start(self, launch: Launch, others_run: bool) -> ActiveJob:
        """Start a job. Raises `NoCapacity` or `StartDeadlinePassed` when it may be started later, `Unstartable` when it
        cannot be started. `others_run`: jobs run whose end may make capacity for it."""
        if self._prepare is not None:
            launch = self._prepare(launch)
        since = ticks_now()
        has_files = False
        captured = None if launch.stream else self.outputs.capture(launch)
        stream = None
        try:
            if launch.stream:
                stream = self.streams.open(launch)
            if launch.files:
                has_files = self._files.write(launch.id, launch.files)
            at = time.time()  # before it begins: no run time may be shorter than the real one
            pid, report = self._spawner.start(launch, stream or captured)
        except Unstartable as error:
            if captured is not None:
                captured.close()
            if stream is not None:
                self.streams.discard(stream)
            if launch.files:
                self._files.remove(launch.id)
            if isinstance(error, NoCapacity) and not self.capacity.may_return(others_run):
                raise Unstartable(str(error)) from None
            raise
        self.capacity.process_started()
        if stream is not None:
            stream.started()
        start = OpenStart(launch.env.get(STEP_ID, ""), pid, at, launch.grant, since, ticks_now())
        return ActiveJob(launch.id, start, report, has_files, captured, stream)

    def adopt(self, launch: Launch, pid: int, at: float, since: int, until: int, stdout: int, stderr: int) -> ActiveJob:
        """The job that a lane runner has started, from the handover."""
        start = OpenStart(launch.env.get(STEP_ID, ""), pid, at, launch.grant, since, until)
        captured = self.outputs.adopt(launch, stdout, stderr) if launch.output else None
        return ActiveJob(launch.id, start, -1, has_files=False, output=captured)

    def offers(self, launches: Iterable[Launch]) -> List[Offer]:
        """Launches prepared for a lane runner, up to the first one that only `start` can start."""
        offers: List[Offer] = []
        for launch in launches:
            can_capture = not launch.output or (self.outputs.memory_flags >= 0 and not launch.keep_output)
            can_capture = can_capture and not launch.stream
            prepared = self._spawner.prepared(launch) if can_capture and self._has_its_files(launch) else None
            if prepared is None:
                break
            line = starting_line(launch.id, launch.env.get(STEP_ID, ""), launch.grant)
            offers.append((quoted(launch.id).encode("ascii"), line.encode("ascii")) + prepared)
        return offers

    def _has_its_files(self, launch: Launch) -> bool:
        """Whether the launch has none but shared files, which are written now and stay."""
        try:
            return all(name.startswith(SHARED) for name in launch.files) and not self._files.write("", launch.files)
        except Unstartable:
            return False

    def clean_up(self, job: ActiveJob) -> str:
        """Remove the files of a job that is over and save its output. Returns the message for its record."""
        message = job.message or read_report(job.report)
        if job.report >= 0:
            os.close(job.report)
        if job.has_files:
            # Before the ledger has the end: if this process is killed in between, its successor removes them.
            self._files.remove(job.id)
        if job.output is not None:
            # Before the end is reported: then users look for the output.
            succeeded = job.exit_code == 0 and job.reason == EndReason.EXIT
            if job.output.keep if succeeded else job.reason in _FINAL_REASONS:
                self.outputs.save(job.output, job.id)
            job.output.close()
        return message

    def close(self, jobs: Iterable[ActiveJob]) -> None:
        """Close the descriptors of these jobs, and the descriptors that all jobs share."""
        for job in jobs:
            if job.report >= 0:
                os.close(job.report)
            if job.output is not None:
                job.output.close()
        self.streams.close()
        self._spawner.close()
