"""Submits the scripts of attempts to the batch system, each at most once.

A command that was killed may have left a submission with an unknown result. Commands that submit keep a lock as long as
they live, also as orphans. So a process that gets the lock knows that no submission is under way, and finds the batch
jobs of earlier submissions in the queue, by their unique names.
"""

import contextlib
import threading
import time
from typing import Callable, Dict, List, Tuple

from qcg.pilotjob.host.records import EndReason
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.attempts import SCRIPT
from qcg.pilotjob.host.remote.batch_ledger import WAIT_FOR_OTHERS, BatchLedgers, OpenAttempt, locked
from qcg.pilotjob.host.remote.batch_queue import BatchJob, BatchQueue, BatchRefusal, CannotAsk
from qcg.pilotjob.host.remote.batch_script import options_of
from qcg.pilotjob.host.remote.layout import BATCH, Layout
from qcg.pilotjob.host.remote.run_job import end_ordered, has_started

SUBMIT_AT_ONCE = 4
"""Submit commands that run at the same time."""
MOST_SUBMISSIONS = 3
"""How often a script is submitted when the batch system does not tell whether it took it."""

REMOVED = "The files of the job on this host were removed while it was under way (%s), so its result is not known."


def is_pending(attempt: OpenAttempt) -> bool:
    """Whether no batch job is known for the attempt, and none has ended."""
    return not attempt.is_removed and not attempt.job_id and "ENDED" not in attempt.status


class BatchSubmission:
    def __init__(
        self,
        layout: Layout,
        ledgers: BatchLedgers,
        queue: BatchQueue,
        log: Callable[[str], None],
        set_problem: Callable[[str], None],
    ) -> None:
        """`set_problem` is called with a sentence when the batch system cannot be asked."""
        self._lock_path = layout.of_host("-submit.lock", BATCH)
        self._claims_path = layout.claims
        self._ledgers = ledgers
        self._queue = queue
        self._log = log
        self._set_problem = set_problem

    def submit_pending(self) -> None:
        """Submit scripts, find the batch jobs of submissions that were interrupted, and end attempts whose files were
        removed. When another command is submitting, that command or the next poll does it."""
        with locked(self._lock_path, WAIT_FOR_OTHERS) as held:
            if held is None:
                return
            pending = self._pending()
            if pending:
                self._submit(self._without_found(pending), held)
            self._end_removed()

    def _pending(self) -> List[OpenAttempt]:
        """Attempts without a batch job. Attempts that were never submitted and have an order to end are ended here."""
        pending = []
        with self._ledgers.open() as ledger:
            for attempt in ledger.open_attempts():
                if not is_pending(attempt):
                    continue
                if "KILL" in attempt.status and "SUBMITTING" not in attempt.status:
                    ledger.end(attempt, *end_ordered(attempt.status))
                else:
                    pending.append(attempt)
        return pending

    def _without_found(self, pending: List[OpenAttempt]) -> List[OpenAttempt]:
        """Find batch jobs by name. Returns the attempts that have none and have to be submitted."""
        fresh = [attempt for attempt in pending if "SUBMITTING" not in attempt.status]
        tried = {str(one.status.get("JOB_NAME", "")): one for one in pending if "SUBMITTING" in one.status}
        if not tried:
            return fresh
        try:
            found = self._queue.find_jobs(sorted(tried))
        except CannotAsk as error:
            self._set_problem(str(error))
            _record_ids(tried, error.found)
            return fresh
        _record_ids(tried, found)
        absent = [one for name, one in tried.items() if name not in found and not has_started(one.directory)]
        with self._ledgers.open() as ledger:
            for attempt in absent:
                if "KILL" in attempt.status:
                    ledger.end(attempt, *end_ordered(attempt.status))
                elif int(attempt.status.get("SUBMISSIONS", 1)) >= MOST_SUBMISSIONS:
                    why = attempt.status.get("SUBMIT_ERROR") or "The commands that submitted the job were killed."
                    ledger.end(attempt, EndReason.UNSTARTABLE, str(why))
                else:
                    fresh.append(attempt)
        return fresh

    def _end_removed(self) -> None:
        """End attempts whose files were removed, once the queue has no batch job of theirs that waits or runs."""
        with self._ledgers.open() as ledger:
            removed = [attempt for attempt in ledger.open_attempts() if attempt.is_removed]
        if not removed:
            return
        try:
            found = self._queue.find_jobs(sorted({attempt.batch_name for attempt in removed} - {""}))
            alive = {name: job.id for name, job in found.items() if self._queue.cause(job.state) is None}
            if alive:
                self._queue.kill(sorted(alive.values()))
        except CannotAsk as error:
            self._set_problem(str(error))
            return
        with self._ledgers.open() as ledger:
            for attempt in removed:
                if attempt.batch_name in alive:
                    continue  # it is being killed
                place = attempt.directory or "its claim in %s" % self._claims_path
                reason, message = end_ordered(attempt.status)
                ledger.end(attempt, reason or EndReason.LOST, message if reason else REMOVED % place)

    def _submit(self, attempts: List[OpenAttempt], held: int) -> None:
        refused: List[Tuple[OpenAttempt, str]] = []
        left = iter(attempts)

        def submit_next() -> None:
            for attempt in left:
                text = self._submit_one(attempt, held)
                if text:
                    refused.append((attempt, text))

        # Daemons: a process that ends does not wait for them, because their commands keep the lock.
        threads = [threading.Thread(target=submit_next, daemon=True) for _ in range(min(SUBMIT_AT_ONCE, len(attempts)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if refused:
            with self._ledgers.open() as ledger:
                for attempt, text in refused:
                    ledger.end(attempt, EndReason.UNSTARTABLE, text)

    def _submit_one(self, attempt: OpenAttempt, held: int) -> str:
        """Submit one script. Returns why the batch system refused it; empty when it did not."""
        directory = attempt.directory
        number = int(attempt.status.get("SUBMISSIONS", 0)) + 1
        lines: List[Tuple[str, object]] = [("SUBMITTING", status_file.timestamp(time.time())), ("SUBMISSIONS", number)]
        try:
            # Before the command runs: without this line a job counts as never submitted.
            status_file.append(directory, lines)
            script = "%s/%s" % (directory, SCRIPT)
            job_id = self._queue.submit(script, directory, options_of(directory), held)
            status_file.append(directory, [("JOB_ID", job_id)])
        except BatchRefusal as error:
            return str(error)
        except CannotAsk as error:
            self._set_problem(str(error))
            with contextlib.suppress(OSError):
                status_file.append(directory, [("SUBMIT_ERROR", str(error))])
        except OSError as error:
            self._log("Attempt %s cannot be submitted now: %s (%s)." % (attempt.id, error.strerror, directory))
        return ""


def _record_ids(tried: Dict[str, OpenAttempt], found: Dict[str, BatchJob]) -> None:
    """Record the batch jobs that were found by the names of attempts."""
    for name, job in found.items():
        with contextlib.suppress(OSError):  # it is found again
            status_file.append(tried[name].directory, [("JOB_ID", job.id)])
