"""Copies files for the jobs of one host, concurrently with launches and records of other jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.base import NumberedRecord
from qcg.pilotjob.executors.ssh.copy_lane import CopyLane
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost, JobFiles, LostLogs, with_problem
from qcg.pilotjob.executors.ssh.record_flow import RecordFlow
from qcg.pilotjob.host.records import Ended, Launch

log = logging.getLogger(__name__)


class _End(NamedTuple):
    """The end of an attempt whose files are to be copied."""

    ledger: str
    number: int
    ended: Ended
    is_held: bool
    """Whether it is reported after the copy."""


class FileTasks:
    """Copies that run or wait for a connection: at most one copy to the host runs at a time, and one from it."""

    def __init__(
        self,
        files: JobFiles,
        flow: RecordFlow,
        changed: Callable[[], None],
        failed: Callable[[str, str], None],
        show: Callable[[str], None],
    ) -> None:
        """`changed`: called when launches may go, or ends were reported. `failed`: gets the id of a launch whose inputs
        could not be copied, and a sentence. `show`: gets a sentence for the user."""
        self._files = files
        self._flow = flow
        self._changed = changed
        self._failed = failed
        self._show = show
        self._inputs = CopyLane(self._stage_in, self._give_up_inputs)
        self._ends = CopyLane(self._after_end, self._give_up_outputs)
        self._staging: set[str] = set()
        self._staged: set[str] = set()
        self._lost_logs = 0

    @property
    def is_busy(self) -> bool:
        """Whether files of ended jobs are still to be copied."""
        return not self._ends.is_empty

    @property
    def unretrieved(self) -> int:
        """The number of attempts whose ends were reported, and whose logs were not retrieved."""
        return self._lost_logs + sum(not end.is_held for end in self._ends.waiting)

    def may_go(self, launch: Launch) -> bool:
        """Whether a launch can be sent: its inputs are there, or it has none."""
        if launch.id in self._staged:
            self._staged.discard(launch.id)
            return True
        return launch.id not in self._staging and not self._files.needs_inputs(launch)

    def launched(self, launches: Sequence[Launch]) -> None:
        """Launches are sent: remember the files to copy after their ends."""
        for launch in launches:
            self._files.launched(launch)

    def refused(self, ends: Sequence[Ended]) -> None:
        """Report the ends of launches that the host has refused. They have no files to copy."""
        for ended in ends:
            self._files.follows_end(ended)  # it forgets the launch
        self._flow.report(ends)

    def stage_in(self, launches: Sequence[Launch]) -> None:
        """Have the inputs of launches copied, unless that is under way."""
        fresh = [
            launch
            for launch in launches
            if launch.id not in self._staging and launch.id not in self._staged and self._files.needs_inputs(launch)
        ]
        if fresh:
            self._staging.update(launch.id for launch in fresh)
            self._inputs.add(fresh)

    def arrived(self, ledger: str, records: Sequence[NumberedRecord]) -> None:
        """Report records, and copy files of attempts that have ended."""
        held = self._flow.arrived(ledger, records, self._files.holds_end)
        waiting = [
            _End(ledger, record.number, record.body, is_held=True) for record in held if isinstance(record.body, Ended)
        ]
        numbers = {record.number for record in held}
        follow = [
            _End(ledger, record.number, record.body, is_held=False)
            for record in records
            if isinstance(record.body, Ended) and record.number not in numbers and self._files.follows_end(record.body)
        ]
        self._ends.add([*waiting, *follow])

    def connected(self, host: ConnectedHost) -> None:
        self._inputs.connected(host)
        self._ends.connected(host)

    def disconnected(self) -> None:
        """Launches are given back, so that their inputs are not needed there. Ends wait for the next connection."""
        self._inputs.disconnected()
        self._inputs.clear()
        self._ends.disconnected()
        self._staging.clear()
        self._staged.clear()

    def clear(self) -> None:
        """Copy none of the waiting files."""
        self.disconnected()
        self._ends.clear()

    def close(self) -> None:
        self._inputs.close()
        self._ends.close()

    async def _stage_in(self, host: ConnectedHost, launches: list[Launch]) -> None:
        failures = await self._files.stage_in(host, launches)
        ids = {launch.id for launch in launches}
        self._staging -= ids
        self._staged |= ids - failures.keys()
        for id, sentence in failures.items():
            self._failed(id, sentence)
        self._changed()

    def _give_up_inputs(self, host: ConnectedHost, launches: list[Launch], why: str) -> None:
        for launch in launches:
            self._staging.discard(launch.id)
            self._failed(launch.id, f"Its inputs could not be copied to {host.config.name}: {why}.")
        self._changed()

    async def _after_end(self, host: ConnectedHost, ends: list[_End]) -> None:
        reported = await self._files.after_end(host, [end.ended for end in ends])
        for lost in self._files.take_lost_logs():
            self._lose_logs(host, lost)
        by_id = {ended.id: ended for ended in reported}
        self._release([end._replace(ended=by_id.get(end.ended.id, end.ended)) for end in ends])

    def _give_up_outputs(self, host: ConnectedHost, ends: list[_End], why: str) -> None:
        if logs := sum(not end.is_held for end in ends):
            what = f"the logs of {pluralize(logs, 'attempt')} could not be retrieved from {host.config.name}"
            self._lose_logs(host, LostLogs(logs, f"{what}: {why}."))
        problem = f"Its outputs could not be copied from {host.config.name}: {why}."
        self._release([end._replace(ended=with_problem(end.ended, problem)) for end in ends])

    def _lose_logs(self, host: ConnectedHost, lost: LostLogs) -> None:
        """Show the first failure at once. The number of all is shown at the end of the run."""
        if not self._lost_logs:
            self._show(f"{host.config.name}: {lost.reason}")
        self._lost_logs += lost.attempts

    def _release(self, ends: Sequence[_End]) -> None:
        for end in ends:
            if end.is_held:
                self._flow.release(end.ledger, end.number, end.ended)
        self._changed()
