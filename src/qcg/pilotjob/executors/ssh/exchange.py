"""Requests to one connected host, and the records and messages with which it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qcg.pilotjob.agent import protocol
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.base import ExecutorObserver, NumberedRecord
from qcg.pilotjob.executors.ssh.acknowledgements import Acknowledgements
from qcg.pilotjob.executors.ssh.attempts import RemoteAttempts
from qcg.pilotjob.executors.ssh.config import HostConfig
from qcg.pilotjob.executors.ssh.connection import Connection
from qcg.pilotjob.executors.ssh.errors import SubCommandRefused
from qcg.pilotjob.executors.ssh.file_tasks import FileTasks
from qcg.pilotjob.executors.ssh.job_files import JobFiles
from qcg.pilotjob.executors.ssh.record_flow import RecordFlow
from qcg.pilotjob.executors.ssh.schedule import PollSchedule
from qcg.pilotjob.host.records import Ended, EndReason, Launch, Running
from qcg.pilotjob.launch.remote import RUN_DIRECTORY

log = logging.getLogger(__name__)

MOST_REFUSALS_SHOWN = 10
"""Most sentences about refused launches that are shown to the user. Each job has its own as its message."""
_CONSEQUENCES = {
    "jobs-kill": ", so that jobs there cannot be ended",
    "remote-tidy": ", so that contact file and keys stay there",
}
"""Consequences of a request that the gate refuses."""


class HostExchange:
    """Everything between this manager and one host that outlives a connection: attempts, records, acknowledgements.

    Methods with a `connection` raise ConnectionProblem and RemoteError.
    """

    def __init__(
        self, config: HostConfig, acked: Mapping[str, int], observer: ExecutorObserver, files: JobFiles
    ) -> None:
        """`acked`: by ledger, the last number that is in the journal."""
        self.name = config.name
        self._observer = observer
        self.attempts = RemoteAttempts()
        self.acks = Acknowledgements(acked)
        self.flow = RecordFlow(self.name, acked, observer.records_received)
        self.files = FileTasks(files, self.flow, self.wake_up, self._could_not_stage, self.show)
        self.polls = PollSchedule(config.submit_poll_interval, config.poll_interval)
        self.wake = asyncio.Event()
        """Set when there may be something to send over the connection."""
        self.changed = asyncio.Event()
        """Set when attempts or acknowledgements change, for the shutdown."""
        self._shown: set[str] = set()
        self._refusals_shown: set[str] = set()

    def wake_up(self) -> None:
        self.wake.set()
        self.changed.set()

    def show(self, sentence: str) -> None:
        """Show a sentence to the user, once."""
        if sentence not in self._shown:
            self._shown.add(sentence)
            self._observer.notice(sentence)

    def forget(self) -> None:
        """Drop all attempts, and the ends that wait for files."""
        self.attempts.clear()
        self.flow.clear()
        self.files.clear()

    # -- requests -------------------------------------------------------------------------------------------------

    async def submit(self, connection: Connection, batch: list[Launch]) -> None:
        # The path of the run directory is known only here. It goes into the JSON text.
        run_dir = msgspec.json.encode(connection.host.run_dir)[1:-1]
        self.files.launched(batch)
        reply = await connection.call(
            {"do": "jobs-submit", "launches": batch}, replaced=(RUN_DIRECTORY.encode(), run_dir)
        )
        refused = refusals([launch.id for launch in batch], reply.head.get("results", {}))
        self.attempts.answered([launch.id for launch in batch if launch.id not in refused])
        self.polls.busy(time.monotonic())
        if refused:
            await self._end_refused(connection, refused)

    async def _end_refused(self, connection: Connection, refused: Mapping[str, str]) -> None:
        """Report the ends of launches that the host has refused, by id with a sentence each. It has recorded these ends
        itself, unless it cannot write to its ledger."""
        for id, sentence in refused.items():
            log.warning("%s did not accept %s: %s", self.name, id, sentence)
            if len(self._refusals_shown) < MOST_REFUSALS_SHOWN:
                self._refusals_shown.add(sentence)
                self.show(f"{self.name} does not accept a job: {printable(sentence)}")
        await self.poll(connection)
        unrecorded = [id for id in refused if self.attempts.drop_refused(id)]
        if unrecorded:
            self.files.refused([never_started(id, EndReason.UNSTARTABLE, refused[id]) for id in unrecorded])

    async def call_if_admitted(self, connection: Connection, request: dict[str, Any]) -> None:
        """Send a request that a gate may refuse: jobs start and end there without it."""
        try:
            reply = (await connection.call(request)).head
        except SubCommandRefused as refused:
            self.show(f"{self.name} does not admit {request['do']}{_CONSEQUENCES.get(request['do'], '')}: {refused}")
            return
        if (left := reply.get("left")) and request.get("how") == "kill":
            jobs = pluralize(len(left), "job runs", "jobs run")
            self.show(
                f"{self.name}: {jobs} on another login host than {connection.host.address}, to which this manager is"
                " connected; the order to end is left in a file there, which the other host reads while it is up"
            )

    async def poll(self, connection: Connection) -> None:
        """Fetch the records of the host since the last acknowledgement."""
        request = {"do": "jobs-poll", "acks": self.acks.take(time.monotonic()), "full": True}
        reply = (await connection.call(request)).head
        self.messages_arrived(reply.get("messages", []))
        news = self.records_arrived(reply.get("reports", {}))
        self.polls.polled(time.monotonic(), news=news)
        self._report_lost(self.attempts.reported(live_attempts(reply)))
        self.changed.set()

    async def send_acks(self, connection: Connection) -> None:
        request = {"do": "jobs-poll", "acks": self.acks.take(time.monotonic()), "full": False}
        reply = (await connection.call(request)).head
        self.messages_arrived(reply.get("messages", []))
        self.records_arrived(reply.get("reports", {}))
        self.changed.set()

    # -- answers --------------------------------------------------------------------------------------------------

    def records_arrived(self, reports: Mapping[str, Any]) -> bool:
        """Report records, by ledger. Returns whether one of them is new."""
        news = False
        for ledger, encoded in reports.items():
            fresh = self.flow.fresh(ledger, decode_records(encoded))
            if fresh:
                news = True
                self.attempts.recorded(fresh)
                self.files.arrived(ledger, fresh)
        if news:
            self.wake_up()
        return news

    def messages_arrived(self, messages: Sequence[Any]) -> None:
        for id, text in self.acks.new_messages(messages):
            self._observer.message_received(id, text)

    def _report_lost(self, missing: Sequence[Running]) -> None:
        """The host had accepted these attempts and has no record of them: they may have run, so they are not started
        again as if they had never been sent."""
        text = f"{self.name} has no record of this job any more; files of the run may have been removed there"
        if missing:
            self.flow.report(
                [
                    Ended(one.id, time.time(), -1, EndReason.LOST, text, one.pid, one.started, one.grant)
                    for one in missing
                ]
            )

    def _could_not_stage(self, id: str, message: str) -> None:
        if self.attempts.drop_unsent(id):
            self.flow.report([never_started(id, EndReason.UNSTARTABLE, message)])


def refusals(ids: Sequence[str], results: Mapping[str, Any]) -> dict[str, str]:
    """The launches that a host has refused, with a sentence each, from the results of `jobs-submit` by id.

    The result of a launch whose id it cannot read has an empty id."""
    unreadable = results.get("")
    found = {id: results.get(id, unreadable) for id in ids}
    return {id: str(result.get("error", "")) for id, result in found.items() if isinstance(result, dict)}


def never_started(id: str, reason: str, message: str) -> Ended:
    """The end of an attempt that was not sent to its host, or that the host has refused."""
    return Ended(id, time.time(), -1, reason, message, 0, 0.0)


def decode_records(encoded: Any) -> list[NumberedRecord]:
    """Decode the records of one ledger, from the reply to a poll or from an event."""
    return list(msgspec.convert(encoded, list[protocol.WireRecord]))


def live_attempts(reply: Mapping[str, Any]) -> list[Running]:
    """The live attempts in the reply to a poll, without attempts that have ended while the host composed it."""
    ended = {
        record.body.id
        for encoded in reply.get("reports", {}).values()
        for record in decode_records(encoded)
        if isinstance(record.body, Ended)
    }
    return [running for running in msgspec.convert(reply.get("live", []), list[Running]) if running.id not in ended]
