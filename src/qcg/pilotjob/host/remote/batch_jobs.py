"""Attempts that run through the batch system of a host.

No process of ours stays on the host for them: each command opens the ledger of batch jobs under a lock, and the next
command finds the state that earlier commands left. An attempt is open in the ledger from the moment at which its
directory and its script are complete; then it is

    pending         no batch job is known for it: it is submitted, or found in the queue by its unique name
    submitted       its status file has JOB_ID
    started         the runner on a compute node has appended PID and STARTED
    over            the runner has appended ENDED, or the batch system says that there is no such batch job any more
"""

import contextlib
import os
import signal
import time
from shlex import quote
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from qcg.pilotjob.host.ledger import Ledger
from qcg.pilotjob.host.records import STEP_ID, Ended, EndReason, Launch
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.attempts import SCRIPT, STDERR, Attempt, Attempts
from qcg.pilotjob.host.remote.backends import Backend, read_queue
from qcg.pilotjob.host.remote.batch_ledger import BatchLedger, BatchLedgers, OpenAttempt, parse_time
from qcg.pilotjob.host.remote.batch_queue import BatchJob, BatchQueue, BatchRefusal, CannotAsk
from qcg.pilotjob.host.remote.batch_script import batch_script, unique_name, write_script
from qcg.pilotjob.host.remote.batch_submission import BatchSubmission, is_pending
from qcg.pilotjob.host.remote.claims import Claims, check_epoch, locked, read_claim, remove_claims
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.launches import UnreadableLaunch, read_launch
from qcg.pilotjob.host.remote.layout import BATCH, Layout, make_directories, read_text
from qcg.pilotjob.host.remote.run_job import end_ordered
from qcg.pilotjob.host.remote.supervisor_client import far_command
from qcg.pilotjob.host.start_errors import Unstartable

ASKED_SUFFIX = ".asked"
"""Suffix of the file whose time is that of the last question to the queue."""
WAIT_FOR_STATE = 60.0
"""Seconds for which the end of a job that the batch system ended waits for the batch system to say why."""

_SENTENCES = {
    "cancelled": "The job was cancelled in %s by a user or an administrator, not through this run (state %s).",
    "time limit": "%s ended the job at the time limit of the batch job (state %s).",
    "memory": "%s ended the job because it used more memory than it had asked for (state %s).",
    "node failed": "A node of the job failed, says %s (state %s).",
    "preempted": "%s ended the job in favour of another one (state %s).",
}
"""By cause, as in `cluster/remote_queue.py:Cause`."""


class BatchJobs(Backend):
    def __init__(
        self, layout: Layout, command: Optional[List[str]] = None, log: Callable[[str], None] = lambda line: None
    ) -> None:
        """`command`: the far side as words, as batch scripts call it on a compute node; by default as this process was
        called. Raises CommandError."""
        described = read_queue(layout)
        if described is None:
            raise CommandError("The jobs of this host went through a batch system, and none is configured for it now.")
        self.queue = BatchQueue(described)
        self._layout = layout
        self._instance = (read_text(layout.instance) or "").strip()
        self._command = far_command() if command is None else command
        self._attempts = Attempts(layout, self._instance, " ".join(map(quote, self._command)), self.queue.name)
        self._log = log
        self._claims = Claims(layout, BATCH)
        self._ledgers = BatchLedgers(layout, log)
        self._submission = BatchSubmission(layout, self._ledgers, self.queue, log, self._set_problem)
        self._has_removed_stray_claims = False
        self._asked = layout.of_host(ASKED_SUFFIX, BATCH)
        self.changes = layout.changes
        self.problem = ""
        """Why the batch system could not be asked the last time, as a sentence; empty when it could."""
        self.asks_why = False
        """The end of a job waits for the batch system to say why."""
        self.has_open = False
        """Some attempts have no end."""
        self.has_orders = False
        """Some attempts are to be ended."""
        self.has_waiting = False
        """Some attempts have not started."""

    def set_epoch(self, epoch: int) -> None:
        self._ledgers.set_epoch(epoch)

    def check_epoch(self) -> None:
        """Raise CommandError when another channel has replaced the one of this process."""
        self._ledgers.check_epoch()

    # Requests

    def submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        results = self.accept(request)
        self.carry_out()
        return results

    def kill(self, request: Dict[str, Any]) -> List[str]:
        done = self.take_order(request)
        self.carry_out()
        return done

    def poll(self) -> None:
        self.carry_out()

    # Quick parts of requests; `carry_out` does the rest

    def accept(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Claim the launches of a request and write their scripts. Returns the results by id."""
        results: Dict[str, Any] = {}
        make_directories(self.changes)
        with locked(self._layout, exclusive=False):
            check_epoch(self._layout, request, required=True)
            with self._ledgers.open() as ledger:
                for fields in request.get("launches") or ():
                    try:
                        launch = read_launch(fields)
                        results[launch.id] = self._accept(ledger, launch)
                    except UnreadableLaunch as unreadable:
                        id, text = unreadable.id, str(unreadable)
                        is_known = bool(id) and ledger.knows(id)
                        results[id] = "known" if is_known else self._refuse(ledger, id, text) if id else {"error": text}
        return results

    def take_order(self, request: Dict[str, Any]) -> List[str]:
        """Note in status files which attempts are to be ended, or send them a signal. Returns the attempts without an
        end."""
        ids = [id for id in request.get("ids") or () if isinstance(id, str)]
        how = request.get("how", "kill")
        if how == "kill":
            return self._order_end(
                ids, str(request.get("reason") or EndReason.CANCEL), str(request.get("message") or "")
            )
        if how == "signal":
            number = request.get("signal")
            if not isinstance(number, int) or not 0 < number < signal.NSIG:
                raise CommandError("%r is not the number of a signal." % number)
            return self._signal(ids, number)
        if how == "retract":
            return []  # batch jobs wait in no lane
        raise CommandError("%r is not a way to end jobs: it is kill, retract or signal." % how)

    def _order_end(self, ids: List[str], reason: str, message: str) -> List[str]:
        with self._ledgers.open() as ledger:
            attempts = ledger.open_attempts(ids)
            for attempt in attempts:
                ledger.order_end(attempt, reason, message)
        return [attempt.id for attempt in attempts]

    def _signal(self, ids: List[str], number: int) -> List[str]:
        with self._ledgers.open() as ledger:
            running = [one for one in ledger.open_attempts(ids) if "STARTED" in one.status and one.job_id]
        try:
            self.queue.send_signal([attempt.job_id for attempt in running], number)
        except CannotAsk as error:
            raise CommandError(str(error)) from None
        return [attempt.id for attempt in running]

    def _accept(self, ledger: Ledger, launch: Launch) -> Any:
        id = launch.id
        if ledger.knows(id):
            return "known"
        directory = ""
        if launch.remote is not None:
            directory = "%s/%s/%s" % (self._layout.run_dir, self._layout.log_directory(), launch.remote.directory)
        claim = read_claim(self._layout, id)
        if claim is not None and claim.ledger != BATCH:
            return "known"
        # A claim that the ledger does not know is of a command that was killed: nothing was submitted.
        remove_claims(self._layout, [id])
        try:
            if not self._claims.make(id, directory, launch.grant, unique_name(launch, self._instance)):
                return "known"
        except OSError as error:
            text = "The attempt cannot be claimed: %s (%s)." % (error.strerror, self._layout.claim(id))
            return self._refuse(ledger, id, text)
        try:
            self._set_up(launch, Attempt(directory, time.time()))
        except (Unstartable, BatchRefusal) as error:
            return self._refuse(ledger, id, str(error))
        if not ledger.starting(id, launch.env.get(STEP_ID, ""), launch.grant):
            remove_claims(self._layout, [id])
            return {"error": ledger.write_error}
        return "accepted"

    def _refuse(self, ledger: Ledger, id: str, text: str) -> Dict[str, str]:
        if not ledger.refused(Ended(id, time.time(), -1, EndReason.UNSTARTABLE, text, 0, 0.0)):
            remove_claims(self._layout, [id])
        return {"error": text}

    def _set_up(self, launch: Launch, attempt: Attempt) -> None:
        if not attempt.directory:
            raise Unstartable("A job of a batch system needs a directory, and its launch names none.")
        launch = self._attempts.complete(launch, attempt)
        name = unique_name(launch, self._instance)
        # Before the directory is made: a job whose directives are wrong leaves nothing behind.
        script = batch_script(launch, attempt.directory, self._layout.service, name, self.queue, self._command)
        self._attempts.set_up(launch, attempt)
        try:
            write_script(attempt.directory, script)
            status_file.append(attempt.directory, [("JOB_NAME", name)])
        except OSError as error:
            text = "The script %s/%s cannot be written: %s."
            raise Unstartable(text % (attempt.directory, SCRIPT, error.strerror)) from None

    # Work with commands of the batch system

    def carry_out(self) -> None:
        """Submit pending attempts, kill attempts with an order to end, and record starts and ends."""
        with self._ledgers.open() as ledger:
            attempts = ledger.open_attempts()
        if any(is_pending(attempt) or attempt.is_removed for attempt in attempts):
            self._submission.submit_pending()
        if any("KILL" in attempt.status for attempt in attempts):
            self._kill_ordered()
        self.update()

    def close(self) -> None:
        """Close the ledger. A process that ends need not do that."""
        self._ledgers.close()

    def _kill_ordered(self) -> None:
        """Kill the batch jobs of attempts that are to be ended."""
        with self._ledgers.open() as ledger:
            attempts = [
                attempt
                for attempt in ledger.open_attempts()
                if attempt.job_id and "KILL" in attempt.status and not {"KILLED", "ENDED"} & attempt.status.keys()
            ]
        if not attempts:
            return
        try:
            self.queue.kill([attempt.job_id for attempt in attempts])
        except CannotAsk as error:
            self._set_problem(str(error))
            return
        for attempt in attempts:
            with contextlib.suppress(OSError):
                status_file.append(attempt.directory, [("KILLED", status_file.timestamp(time.time()))])

    def update(self, ask: bool = True, changed: Optional[Iterable[str]] = None) -> None:
        """Record starts and ends from status files; and, with `ask`, the ends of jobs that have left the queue. The
        queue is asked at its intervals only, unless the end of a job depends on it. `changed`: read these attempts
        only."""
        with self._ledgers.open() as ledger:
            if not self._has_removed_stray_claims:
                ledger.remove_stray_claims()
                self._has_removed_stray_claims = True
            questions = _read_statuses(ledger, changed)
        if changed is None:
            self.has_open = bool(questions)
            self.has_orders = any(_is_ending(attempt) for attempt in questions)
            self.has_waiting = any("STARTED" not in attempt.status for attempt in questions)
        questions = [attempt for attempt in questions if attempt.job_id]
        self.asks_why = any("ENDED" in attempt.status for attempt in questions)
        if not ask or not questions or not (self.asks_why or self.has_orders or self._is_due()):
            return
        try:
            found = self.queue.list_jobs({one.job_id: str(one.status.get("JOB_NAME", "")) for one in questions})
            self.problem = ""
        except CannotAsk as error:
            self._set_problem(str(error))
            # No job may be taken for gone. A known end is reported without its cause.
            found = {one.job_id: BatchJob(one.job_id, "", "") for one in questions if "ENDED" not in one.status}
            found.update(error.found)
        self._note_question()
        self._record_gone(questions, found)

    @property
    def interval(self) -> float:
        """Seconds between two questions to the queue."""
        return self.queue.submit_poll_interval if self.has_waiting else self.queue.poll_interval

    def _is_due(self) -> bool:
        """Whether no command of this run has asked the queue for so long that it is time to."""
        try:
            return time.time() - os.stat(self._asked).st_mtime >= self.interval
        except OSError:
            return True

    def _note_question(self) -> None:
        with contextlib.suppress(OSError):
            os.close(os.open(self._asked, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
            os.utime(self._asked)

    def _record_gone(self, questions: List[OpenAttempt], found: Dict[str, BatchJob]) -> None:
        """Record the ends of attempts whose batch jobs are over, or are not in the queue."""
        states = {id: job.state for id, job in found.items()}
        forgotten = [attempt.job_id for attempt in questions if attempt.job_id not in states]
        if forgotten:
            states.update(self.queue.ended_states(forgotten))
        self.asks_why = False
        with self._ledgers.open() as ledger:
            # Once more: a job may have ended between the first read and the answer of the batch system.
            for attempt in ledger.open_attempts([attempt.id for attempt in questions]):
                ledger.record_start(attempt)
                state = states.get(attempt.job_id, "")
                cause = self.queue.cause(state)
                is_over = cause is not None or attempt.job_id not in found
                if "ENDED" not in attempt.status:
                    if is_over:
                        ledger.end(attempt, *self._why_gone(attempt, state, cause))
                    continue
                ended = ledger.recorded_end(attempt)
                if ended.reason == EndReason.LOST and not is_over and time.time() < ended.at + WAIT_FOR_STATE:
                    self.asks_why = True
                    continue
                if ended.reason == EndReason.LOST and cause:
                    reason, message = self._why_gone(attempt, state, cause)
                    ended = ended._replace(reason=reason, message=message)
                ledger.ended(ended)

    def _why_gone(self, attempt: OpenAttempt, state: str, cause: Optional[str]) -> Tuple[str, str]:
        """Reason and message for an attempt whose batch job is over and whose result is not known."""
        if "KILL" in attempt.status:
            return end_ordered(attempt.status)
        label = self.queue.label
        if cause in _SENTENCES:
            reason = {"time limit": EndReason.TIMEOUT, "memory": EndReason.MEMORY}.get(cause, EndReason.LOST)
            return reason, _SENTENCES[cause] % (label, state)
        if cause is None:
            what = "%s does not know job %s any more" % (label, attempt.job_id)
        else:
            what = "%s says that job %s is over (state %s)" % (label, attempt.job_id, state)
        if "STARTED" in attempt.status:
            return EndReason.LOST, "%s, and its result was not recorded." % what
        said = _last_line("%s/%s" % (attempt.directory, STDERR))
        return EndReason.LOST, "%s, and its program was not started%s." % (what, ": " + said if said else "")

    def _set_problem(self, sentence: str) -> None:
        if sentence != self.problem:
            self._log(sentence)
        self.problem = sentence


def _read_statuses(ledger: BatchLedger, ids: Optional[Iterable[str]]) -> List[OpenAttempt]:
    """Record starts and ends from status files. Returns the attempts about which the batch system has to be asked."""
    questions = []
    for attempt in ledger.open_attempts(ids):
        ledger.record_start(attempt)
        if "ENDED" in attempt.status and attempt.status.get("END_REASON") != EndReason.LOST:
            ledger.ended(ledger.recorded_end(attempt))
        else:
            questions.append(attempt)
    return questions


def _is_ending(attempt: OpenAttempt) -> bool:
    """Whether the attempt is to be ended, and the batch system may say soon that it has."""
    killed = attempt.status.get("KILLED")
    return "KILL" in attempt.status and (killed is None or time.time() < parse_time(killed) + WAIT_FOR_STATE)


def _last_line(path: str) -> str:
    """The last line of a short text, for messages."""
    try:
        with open(path, "rb") as file:
            lines = file.read(1 << 16).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
