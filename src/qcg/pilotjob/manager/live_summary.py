"""The summary of a run with a live manager: from counters, so that its cost does not depend on the number of jobs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qcg.pilotjob.core.core_state import name_of
from qcg.pilotjob.core.job_states import counts_by_name
from qcg.pilotjob.core.resources import Node
from qcg.pilotjob.core.waiting import WaitingCounts, count_waiting
from qcg.pilotjob.core.waiting_reasons import waiting_groups
from qcg.pilotjob.core.workload import Load, workload
from qcg.pilotjob.description.model import WHOLE_GPU
from qcg.pilotjob.host.hostname import host_name
from qcg.pilotjob.journal.errors import JournalError
from qcg.pilotjob.manager.engine import Engine
from qcg.pilotjob.report.estimate import Left, estimate
from qcg.pilotjob.report.failure_groups import FailureGroup
from qcg.pilotjob.report.formats import to_second
from qcg.pilotjob.report.recorded_history import FailureSteps, RecordedHistory
from qcg.pilotjob.report.run_summary import (
    MOST_GROUPS,
    MOST_NODES,
    Estimate,
    Group,
    NodeSummary,
    RunSummary,
)
from qcg.pilotjob.report.tail import has_started

if TYPE_CHECKING:
    from qcg.pilotjob.manager.manager import Manager

log = logging.getLogger(__name__)

SHARE = 50
"""Parts of a summary that need time are computed again after so many times the time that they took."""
ESTIMATE_PAUSE = 0.5
"""Seconds for which an expected end is used at least."""
RETRY_PAUSE = 10.0
"""Seconds after which a registry that could not be read is read again."""
FULL = 0.9
"""Part of the cores in use from which on cores, and not starts, limit a run."""


class LiveSummary:
    """Makes summaries of one run, and keeps the parts that need time for a while."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._engine: Engine = manager.engine
        self._first: float | None = None
        """Time of the first submission, once there was one."""
        self._past = asyncio.Lock()
        self._past_after = 0.0
        """Monotonic time from which on failures may be read from the registry again."""
        self._past_error = ""
        """The last error of the registry, which is logged once."""
        self._waiting: tuple[Group, ...] = ()
        self._estimate: Estimate | None = None
        self._expected_until = 0.0
        """Monotonic time until which the last expected end is used."""
        self._explained_until = 0.0
        """Monotonic time until which the last groups of waiting jobs are used."""
        self._examples: dict[tuple[int, int], tuple[str, tuple[str, ...] | None]] = {}
        """Names and last lines of the examples of failures; None for lines that could not be read yet."""

    async def make(self) -> RunSummary:
        await self._read_past()
        await self._read_examples()
        return self.make_now()

    def make_now(self) -> RunSummary:
        """The summary without the last lines and the history of earlier managers that were not read before."""
        engine, state, now = self._engine, self._engine.state, time.time()
        activity = engine.activity
        activity.sample()
        nodes = sorted(map(self._node, state.pool.nodes), key=lambda node: node.state == "ready")
        if self._first is None and state.jobs:
            self._first = next(iter(state.jobs.values())).submitted
        self._explain(now)
        local = [node for node in nodes if not node.remote]
        return RunSummary(
            run=self._manager.run_id,
            directory=str(engine.journal.path.parent),
            at=now,
            alive=True,
            host=host_name(),
            started=self._first if activity.bins is None else activity.bins.first,
            ended=None if state.unfinished else activity.all_done_at,
            jobs=counts_by_name(state.job_counts),
            iterations=counts_by_name(state.iteration_counts),
            units=counts_by_name(state.unit_counts),
            cores=state.pool.total_cores,
            used=state.pool.taken_cores,
            gpus=sum([node.gpus for node in local]),
            gpus_used=sum([node.gpus_used for node in local]),
            running=state.executing,
            nodes=tuple(nodes[:MOST_NODES]),
            more_nodes=max(len(nodes) - MOST_NODES, 0),
            rates=activity.rates(now),
            estimate=self.expected_end(now),
            waiting=self._waiting,
            failed=tuple([self._failed(group) for group in activity.failures.largest(MOST_GROUPS)]),
            history=None if activity.bins is None else activity.bins.history(),
            stalled=engine.commits.stalled,
            notices=tuple(_notices(nodes, stalled=engine.commits.stalled)),
        )

    def _node(self, node: Node) -> NodeSummary:
        engine, state, spec = self._engine, self._engine.state, node.spec
        how, since, reason = "ready", None, ""
        # On a single machine all nodes share one agent, which connects at once or never.
        if spec.name in state.unreachable_since and (engine.site.allocation or spec.group):
            how = "lost" if spec.name in state.lost_nodes else "away"
            since, reason = state.unreachable_since[spec.name], state.unreachable_reasons.get(spec.name, "")
        elif node.drained:
            drained = state.health.drained[spec.name]
            how, since, reason = "drained", drained.since, drained.reason
        taken = sum(node.gpus_taken.values()) / WHOLE_GPU if node.gpus_taken else 0.0
        return NodeSummary(
            spec.name,
            len(spec.cores),
            len(spec.cores) - node.nfree,
            len(spec.gpus),
            taken,
            how,
            since,
            reason,
            bool(spec.group),
        )

    # -- waiting jobs -------------------------------------------------------------------------------------------------

    def _explain(self, now: float) -> None:
        """Update the groups of waiting jobs, unless that was done just now."""
        began = time.monotonic()
        if began < self._explained_until:
            return
        state = self._engine.state
        waiting = count_waiting(state)
        found = waiting_groups(
            state,
            waiting,
            now,
            MOST_GROUPS,
            self._engine.descriptions.of,
            stalled=self._engine.commits.stalled,
            show_time=to_second,
        )
        self._waiting = tuple([Group(group.number, group.reason, group.sentence, group.example) for group in found])
        self._explained_until = time.monotonic() + SHARE * (time.monotonic() - began)

    def expected_end(self, now: float) -> Estimate | None:
        """When the run is expected to end, computed anew unless that was done just now; None if nothing is left."""
        if not self._engine.state.unfinished:
            return None
        began = time.monotonic()
        if began >= self._expected_until:
            state = self._engine.state
            waiting = count_waiting(state)
            self._estimate = self._compute_end(now, waiting, workload(state, waiting.in_lines, now))
            self._expected_until = time.monotonic() + max(SHARE * (time.monotonic() - began), ESTIMATE_PAUSE)
        return self._estimate

    def _compute_end(self, now: float, waiting: WaitingCounts, loads: list[Load]) -> Estimate | None:
        state = self._engine.state
        rates = self._engine.activity.rates(now)
        taken, total = state.pool.taken_cores, state.pool.total_cores
        mean = max([load.mean or 0.0 for load in loads], default=0.0)
        running = sum([load.running for load in loads])
        # Attempts that have run for longer than the average count as useful core time, too.
        elapsed = sum([load.elapsed for load in loads]) / running if running else 0.0
        used = state.core_seconds + taken * max(mean, elapsed)
        left = Left(
            waiting.dependent,
            waiting.held,
            waiting.paused,
            overhead=self._engine.activity.granted / used if used else 1.0,
            start_rate=rates.starts if rates is not None and taken < FULL * total else None,
        )
        return estimate(now, loads, left)

    # -- failures and history -----------------------------------------------------------------------------------------

    def _failed(self, group: FailureGroup) -> Group:
        name, lines = self._examples.get(group.example, ("", ()))
        return Group(group.number, group.reason, group.message, name, lines or ())

    async def _read_examples(self) -> None:
        """Find out the names and the last lines of the examples of failures."""
        examples = [group.example for group in self._engine.activity.failures.largest(MOST_GROUPS)]
        self._examples = {example: found for example, found in self._examples.items() if example in examples}
        await asyncio.gather(
            *[self._read_example(example) for example in examples if self._examples.get(example, ("", None))[1] is None]
        )

    async def _read_example(self, example: tuple[int, int]) -> None:
        try:
            name, streams = self._streams(*example)
        except JournalError:  # it cannot be written at the moment, and so not be read up to date
            return
        tail = await self._manager.output_tails.read(streams)
        self._examples[example] = name, None if tail is None else tuple(tail[1])

    def _streams(self, seq: int, position: int) -> tuple[str, dict[str, str]]:
        """The name and the output files of a job or iteration that has failed."""
        engine = self._engine
        record = engine.journal.job_record(seq)
        job = None if record is None else engine.state.jobs.get(record.name)
        if job is None or job.seq != seq or not job.has_position(position):
            return "", {}
        end = engine.views.view_of(job, position)
        if end.grant is None or not has_started(end):
            return name_of(job, position), {}
        streams = engine.views.streams_of(job, position, end.grant, end)
        return name_of(job, position), streams

    def _is_past_due(self) -> bool:
        return self._engine.activity.outdated and time.monotonic() >= self._past_after

    async def _read_past(self) -> None:
        """Read from the registry: the history of earlier managers, and failures after some were removed."""
        activity = self._engine.activity
        if not self._is_past_due():
            return
        async with self._past:
            if not self._is_past_due():
                return  # it was read while this one waited
            seconds = 0.0
            try:
                connection = self._engine.journal.connection()
                if activity.past_is_missing:
                    past = RecordedHistory(connection, activity.began, self._engine.state.pool.total_cores)
                    seconds = await _in_turns(past.steps())
                    activity.add_past(past.bins, past.failures)
                else:
                    failures = FailureSteps(connection)
                    seconds = await _in_turns(failures.steps())
                    activity.replace_failures(failures.failures)
                self._past_error = ""
            except JournalError:  # it cannot be written at the moment: the old failures are as good
                pass
            except sqlite3.Error as error:
                seconds = RETRY_PAUSE / SHARE
                if self._past_error != str(error):
                    self._past_error = str(error)
                    log.warning("summaries lack a part of the history, which cannot be read now: %s", error)
            self._past_after = time.monotonic() + SHARE * seconds


async def _in_turns(steps: Iterator[None]) -> float:
    """Carry out steps, with a turn of the event loop between them. Returns the seconds that they took."""
    seconds = 0.0
    began = time.monotonic()
    for _ in steps:
        seconds += time.monotonic() - began
        await asyncio.sleep(0)
        began = time.monotonic()
    return seconds + time.monotonic() - began


def _notices(nodes: Sequence[NodeSummary], *, stalled: bool) -> Iterator[str]:
    if stalled:
        yield "the registry cannot be written, so nothing is started; see service.log"
    for node in nodes[:MOST_NODES]:
        if node.state != "ready":
            what = "host" if node.remote else "node"
            since = f" since {to_second(node.since)}" if node.since else ""
            yield f"{what} {node.name} is {node.state}{since}" + (f": {node.reason}" if node.reason else "")
