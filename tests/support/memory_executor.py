"""An executor with hosts in memory: it records messages to them, and the test makes their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from qcg.pilotjob.executors.base import Executor, ExecutorObserver
from qcg.pilotjob.host.records import Ended, Launch, Record, Running, Started


class MemoryExecutor(Executor):
    def __init__(self, observer: ExecutorObserver, hosts: Mapping[str, list[str]], sent: list[str]) -> None:
        """`sent`: gets a line for each message to a host."""
        self.sent = sent
        self._observer = observer
        self._hosts = {host: list(nodes) for host, nodes in hosts.items()}
        self._host_of = {node: host for host, nodes in hosts.items() for node in nodes}
        self._ready: set[str] = set()
        self._collected: dict[str, list[tuple[str, str]]] = {"launch": [], "retract": [], "kill": [], "sweep": []}
        self._last_record = dict.fromkeys(hosts, 0)
        self._reason, self._in_hurry, self._all_left = "", False, asyncio.Event()

    @property
    def hosts(self) -> Mapping[str, Sequence[str]]:
        return self._hosts

    def open(self) -> None: ...

    def start(self) -> None:
        self._observer.scheduling_may_begin([])

    def launch(self, node: str, launch: Launch) -> None:
        self._collected["launch"].append((node, f"launch {launch.id}"))

    def kill(self, node: str, attempt_id: str, reason: str = "cancel", message: str = "") -> None:
        self._collected["kill"].append((node, f"kill {attempt_id} {reason} {message}".rstrip()))

    def retract(self, node: str, attempt_ids: list[str]) -> None:
        self._collected["retract"] += [(node, f"retract {attempt_id}") for attempt_id in attempt_ids]

    def sweep(self, node: str, attempt_id: str) -> None:
        self._collected["sweep"].append((node, f"sweep {attempt_id} on {self._host_of[node]}"))

    def same_host(self, node: str, other: str) -> bool:
        return self._host_of[node] == self._host_of[other]

    def signal(self, attempt_ids: Mapping[str, list[str]], number: int) -> None:
        self._send((node, f"signal {number} {id}") for node, ids in attempt_ids.items() for id in ids)

    def flush(self) -> None:
        for kind, messages in self._collected.items():
            self._collected[kind] = []
            self._send(messages)

    def acknowledge(self, numbers: Mapping[str, int]) -> None:
        self.sent += [f"acknowledge {number}" for host, number in numbers.items() if host in self._ready]

    async def shut_down(self, grace: float, reason: str) -> None:
        self._reason = reason
        self.sent += [f"exit {0 if self._in_hurry else grace:g} {reason}" for _ in self._ready]
        await self._all_left.wait()

    def hurry(self) -> None:
        self._in_hurry = True
        self.sent += [f"exit 0 {self._reason}" for _ in self._ready if self._reason]

    def close(self) -> None: ...

    def _send(self, messages: Iterable[tuple[str, str]]) -> None:
        self.sent += [line for node, line in messages if self._host_of[node] in self._ready]

    # -- what hosts do --------------------------------------------------------------------------------------------

    def connect(self, host: str, *live: Running) -> None:
        self._ready.add(host)
        self._observer.host_ready(host, self._hosts[host], list(live))

    def disconnect(self, host: str) -> None:
        self._ready.discard(host)
        self._observer.host_away(host, self._hosts[host])

    def report(self, host: str, *bodies: Started | Ended, first: int = 0) -> None:
        """Report records, numbered from this number on if it is given. Records that were reported before are
        dropped."""
        records = [Record(number, body) for number, body in enumerate(bodies, first or self._last_record[host] + 1)]
        if fresh := [record for record in records if record.number > self._last_record[host]]:
            self._last_record[host] = fresh[-1].number
            self._observer.records_received(host, fresh)

    def report_swept(self, host: str, *attempt_ids: str) -> None:
        self._observer.host_swept(host, self._hosts[host], list(attempt_ids))

    def leave(self, host: str) -> None:
        self._ready.discard(host)
        if not self._ready:
            self._all_left.set()
