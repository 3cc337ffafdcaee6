"""Explanations of job states for `why`: why a job waits, where it runs, how it ended."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import resolve
from qcg.pilotjob.core.drain import drained_in_words
from qcg.pilotjob.core.feasibility import count, fits, fits_in, groups_for, why_never
from qcg.pilotjob.core.job_states import (
    CANCELED,
    EXECUTING,
    FAILED,
    OMITTED,
    QUEUED,
    SCHEDULED,
    SUCCEED,
    State,
    counts_by_name,
)
from qcg.pilotjob.core.jobs_ahead import JobsAhead
from qcg.pilotjob.core.outcomes import entries_of, has_begun, is_dependency_met, why_waits
from qcg.pilotjob.core.queue import Head, QueueEntry, entry_of
from qcg.pilotjob.core.records import Attempt, Cleanup, Job
from qcg.pilotjob.core.reservation import Backfill, Reservation
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.core.scheduler import time_left
from qcg.pilotjob.core.why_request import eligible_nodes, free_part, request_in_words, shortage_in_words, totals
from qcg.pilotjob.core.why_resources import avoided_in_words, nodes_awaited, short_counters
from qcg.pilotjob.description.model import WHOLE_GPU, DependencyKind, JobDescription, ResourceRequest

Kind = Literal[
    "dependencies", "agent", "host", "stalled", "nodes", "resources", "patience", "reservation", "time", "next",
    "retry", "held",  # it waits
    "starting", "running", "canceling", "stopping", "leaving",
    "succeeded", "failed", "canceled", "omitted", "left",
]  # fmt: skip

MAX_NAMED = 3
"""Prerequisites that a sentence names; the details list all of them."""


class Reason(Struct, frozen=True):
    """Why a job is in its state."""

    kind: Kind
    sentence: str
    """For people; "it" is the job."""
    details: dict[str, Any] = {}
    """For programs."""


class _Missing(NamedTuple):
    """A dependency that is not met yet."""

    kind: DependencyKind
    name: str
    state: State
    held: bool
    """Whether the prerequisite does not start before it is released."""

    def in_words(self) -> str:
        words = why_waits(self.kind, self.name, self.state)
        return words.replace(f"which is {self.state.name}", "which is held", 1) if self.held else words


class WaitExplainer:
    """Explains waiting jobs at one moment; totals are computed once for all jobs asked about."""

    def __init__(
        self,
        core: CoreState,
        now: float,
        *,
        stalled: bool = False,
        show_time: Callable[[float], str] = str,
        count_ahead: Callable[[int], int] | None = None,
    ) -> None:
        """`stalled`: the journal cannot be written at the moment, so nothing is started. `show_time` returns a time as
        text, `count_ahead` the number of jobs before a place in the queue."""
        self._core = core
        self._stalled = stalled
        self._show_time = show_time
        self._overdue = now - core.patience
        self._now = now
        self._left = time_left(core, now)
        present = [node for node in core.pool.nodes if node.available]
        self._present = [node.spec for node in present]
        self._free = [free_part(node) for node in present]
        self._idle = [free_part(node) for node in present if node.is_idle or node.spec.slots]
        self._backfill = Backfill(core, self._left, keep=False)
        self._keepers: dict[str, Head] = {}
        """The heads of lines for which counters of the run are kept, by name of the counter."""
        self._lacking_counters: list[Head] = []
        """The heads of lines for which counters of the run are taken or kept, in order."""
        self._blockers = self._find_blockers()
        self._count_ahead = JobsAhead(core.queue).count if count_ahead is None else count_ahead
        self._dependents: dict[Job, frozenset[Job]] = {}

    def why_waiting(self, job: Job, position: int, description: JobDescription, *, of_line: bool = False) -> Reason:
        """Explain a QUEUED job without iterations (position -1) or a QUEUED iteration. `of_line`: only facts that hold
        for all jobs in its queue line."""
        missing = list(self._missing(job, position, description))
        if missing:
            return _waits_for(missing)
        if self._core.holds and (since := self._core.holds.since(job, position)):
            name = name_of(job, position if position in self._core.holds.positions.get(job.seq, ()) else -1)
            text = f"it is held since {self._show_time(since)}; release it with: qcg-pm release {shlex.quote(name)}"
            return Reason("held", text, {"since": self._show_time(since)})
        entry = entry_of(job, position)
        line, request = entry.line, entry.line.request
        details = self._amounts(request)
        if entry.rank:
            details["priority"] = description.priority
        if (paused := self._core.paused.get((job.seq, position))) is not None:
            number = self._core.past_attempts(job, position) + 1
            until = self._show_time(paused[0])
            text = f"it pauses until {until}, then it is ready for attempt {number}"
            return Reason("retry", text, {**details, "attempt": number, "until": until})
        if line.avoid and not fits(request, [spec for spec in self._candidates(request) if spec.name != line.avoid]):
            avoiding = self._core.health.avoiding.get((job.seq, position), (self._core.now, None))
            until = self._show_time(avoiding[0])
            text = f"it needs {request_in_words(request)} on another node than {avoided_in_words(line.avoid, until)}"
            return Reason("retry", text, {**details, "avoids": line.avoid, "until": until})
        if self._stalled:
            text = "it waits because the journal cannot be written at the moment; see service.log"
            return Reason("stalled", text, details)
        if self._left <= 0:
            why = self._core.failure_limit.reason or "the time of this one is over"
            return Reason("time", f"it waits for the next manager of this run: {why}, so nothing is started", details)
        if entry.wall_time > self._left:
            text = (
                f"it waits for the next manager of this run: its wall time is {entry.wall_time:.0f} s,"
                f" and this manager has only {self._left:.0f} s left"
            )
            return Reason("time", text, {**details, "wallTime": entry.wall_time, "timeLeft": self._left})
        if (short := self._core.pool.counters.why_never(request.extra)) is not None:
            text = f"it waits for resources that this run does not have: {short}; resume the run with more (--resource)"
            return Reason("resources", text, details)
        if line.never is not None:
            text = f"it waits for other nodes: {line.never}; the next manager of this run may have more"
            return Reason("nodes", text, {**details, "away": []})
        if request.host and not fits(request, self._present):
            return self._waits_for_host(request, details)
        if not request.host and not groups_for(request, self._present) and drained_in_words(self._core):
            text = f"it waits for a node: {drained_in_words(self._core)}, and no other one is available"
            return Reason("nodes", text, {**details, "away": [], "drained": list(self._core.health.drained)})
        if not request.host and not groups_for(request, self._present):
            return Reason("agent", "it waits for an agent: none is connected, so nothing can be started", details)
        never = why_never(request, self._present)
        if never is not None:
            away = [spec.name for spec in self._core.nodes if not spec.group and spec not in self._present]
            text, named = nodes_awaited(self._core, away)
            return Reason("nodes", f"it waits for {text}; on the available nodes: {never}", {**details, **named})
        if request.extra is not None and (found := short_counters(self._core, request.extra)) is not None:
            text, named = found
            return self._in_queue("resources", text, entry, {**details, "named": named})
        if fits(request, self._candidates(request)):
            return self._could_start(entry, position, details)
        return self._waits_for_resources(entry, position, details, of_line=of_line)

    def _waits_for_host(self, request: ResourceRequest, details: dict[str, Any]) -> Reason:
        """Explain a job whose host is away, or a job for any host when all hosts that could run it are away."""
        present = groups_for(request, self._present)
        away = [name for name in groups_for(request, self._core.nodes) if name not in present]
        sentences = [self._state_of_host(name) for name in away]
        return Reason("host", f"it waits: {'; '.join(sentences)}", {**details, "away": away})

    def _state_of_host(self, name: str) -> str:
        core = self._core
        if drained := drained_in_words(core, [name]):
            return f"host {drained}"
        if name not in core.unreachable_since:
            return f"host {name} is not connected yet"
        reason = core.unreachable_reasons.get(name, "")
        return f"host {name} is unreachable since {self._show_time(core.unreachable_since[name])}" + (
            f": {reason}" if reason else ""
        )

    # -- dependencies -----------------------------------------------------------------------------------------------

    def _missing(self, job: Job, position: int, description: JobDescription) -> Iterator[_Missing]:
        """The dependencies that are not met yet. A dependency on a removed job had been met."""
        if job.unmet is None:
            return
        indices = job.iterations.indices if job.iterations is not None else None
        for kind, entry in entries_of(description):
            found = resolve(job.name, entry, indices, self._core.jobs, kind=kind)
            if isinstance(found, str) or not self._waits(job, found.job):
                continue
            other = found.job
            other_position = -1 if found.position is None else found.position
            if found.same_index:
                assert indices is not None
                assert other.iterations is not None
                other_position = other.iterations.indices.index(indices[position])
            state = self._core.state_of(other, other_position)
            if is_dependency_met(kind, state, begun=has_begun(self._core, other, other_position)) is None:
                held = state is QUEUED and bool(self._core.holds and self._core.holds.since(other, other_position))
                yield _Missing(kind, name_of(other, other_position), state, held)

    def _waits(self, job: Job, other: Job) -> bool:
        """Whether `job` waits for exactly this job, not for an earlier one of the same name."""
        found = self._dependents.get(other)
        if found is None:
            dependents = other.dependents
            kinds = (
                []
                if dependents is None
                else [dependents.on_job, dependents.same_index, *dependents.on_position.values()]
            )
            outcomes = dependents.outcomes if dependents is not None else None
            watching = [waiting.job for listed in (outcomes or {}).values() for waiting in listed]
            found = self._dependents[other] = frozenset(chain(watching, *kinds))
        return job in found

    # -- resources --------------------------------------------------------------------------------------------------

    def _waits_for_resources(
        self, entry: QueueEntry, position: int, details: dict[str, Any], *, of_line: bool
    ) -> Reason:
        request = entry.line.request
        free = groups_for(request, self._candidates(request))
        wanted = request_in_words(request)
        shown = {
            name: shortage_in_words(request, free.get(name, []), nodes)
            for name, nodes in groups_for(request, self._present).items()
        }
        if request.host:
            text = f"it needs {wanted}; " + "; ".join(f"on host {name} {shortage}" for name, shortage in shown.items())
        else:
            text = f"it needs {wanted}, and {shown['']}"
        reason = self._in_queue("resources", text, entry, details)
        if of_line:
            return reason
        if any(blocker[:2] == (entry.order, position) for blocker in self._blockers.values()):
            text = f"; it has waited longer than the patience of {self._core.patience:g} s, so free resources are"
            reason = replace(reason, sentence=f"{reason.sentence}{text} kept for it")
        reserved = next((found for found in self._reservations(entry) if found.is_for(entry.job, position)), None)
        if reserved is not None:
            expected = self._expected(reserved)
            text = f"{reason.sentence}; {expected['sentence']}"
            reason = Reason(reason.kind, text, {**reason.details, "expected": expected})
        return reason

    def _in_queue(self, kind: Kind, text: str, entry: QueueEntry, details: dict[str, Any]) -> Reason:
        """A reason, with the number of jobs ahead in the queue."""
        before, higher = self._count_ahead(entry.order), self._count_ahead(entry.rank)
        if before:
            text += f"; {count(before, 'job')} ahead of it"
        if higher:
            text += f", {'all' if higher == before else higher} of higher priority"
            details = {**details, "higherPriority": higher}
        return Reason(kind, text, {**details, "before": before})

    def _could_start(self, entry: QueueEntry, position: int, details: dict[str, Any]) -> Reason:
        request = entry.line.request
        fitting = [
            name for name, nodes in groups_for(request, self._candidates(request)).items() if fits_in(request, nodes)
        ]
        blockers = [self._blockers[name] for name in fitting if name in self._blockers]
        names = request.extra.names_of_run if request.extra is not None else ()
        keepers = [self._keepers[name] for name in names if name in self._keepers]
        keepers = [keeper for keeper in keepers if keeper[:2] < (entry.order, position)]
        if keepers or (
            len(blockers) == len(fitting) and all(blocker[:2] < (entry.order, position) for blocker in blockers)
        ):
            blockers = keepers or blockers
            _, blocking, _, line = blockers[0]
            name = name_of(line.first.job, blocking)
            text = (
                f"its request, {request_in_words(request)}, fits, but it may not overtake {name!r}, which needs"
                f" {request_in_words(line.request)} and has waited longer than the patience of"
                f" {self._core.patience:g} s"
            )
            return Reason("patience", text, {**details, "behind": name})
        delayed = self._backfill.delayed(entry, fitting)
        if delayed is not None:
            expected = self._expected(delayed)
            name = name_of(delayed.job, delayed.position)
            text = (
                f"its request, {request_in_words(request)}, fits, but it would delay {name!r}, which is"
                f" {expected['sentence']}"
            )
            return Reason("reservation", text, {**details, "behind": name, "expected": expected})
        return Reason("next", f"its request, {request_in_words(request)}, fits: it is about to start", details)

    def _reservations(self, entry: QueueEntry) -> list[Reservation]:
        """The reservations in the groups in which a job can run."""
        found = [self._backfill.reservation(group) for group in entry.line.target.groups]
        return [reserved for reserved in found if reserved is not None]

    def _expected(self, reserved: Reservation) -> dict[str, Any]:
        """The expected start of a job with a reservation, and the job and node that it waits for."""
        at = self._show_time(max(reserved.at, self._now))
        last, node = reserved.forecast.last, reserved.forecast.node
        name = name_of(last.job, last.position) if last is not None else ""
        learned = reserved.forecast.learned_until < math.inf
        sentence = f"expected to start by {at}, when {name!r} has ended on {node}"
        if learned:
            sentence += ", if jobs take no longer than those before them"
        expected = {"at": at, "after": name, "node": node, "learned": learned}
        if (ahead := self._ahead_without_counters(reserved)) is not None:
            expected["unless"] = name_of(ahead[3].first.job, ahead[1])
            sentence += f", unless {expected['unless']!r} starts first, which is ahead and waits for named resources"
        return {"sentence": sentence, **expected}

    def _ahead_without_counters(self, reserved: Reservation) -> Head | None:
        """The first job that is ahead of a reserved one and lacks counters of the run: when they become free is not
        forecast, and then it may take the reserved cores."""
        place = reserved.order, reserved.position
        return next(
            (head for head in self._lacking_counters if head[:2] < place and reserved.group in head[3].target.groups),
            None,
        )

    def _find_blockers(self) -> dict[str, Head]:
        """The heads of lines that later jobs may not overtake, by group, by the rule of the scheduler."""
        found: dict[str, Head] = {}
        counters = self._core.pool.counters
        for head in sorted(self._core.queue.heads(self._overdue, self._left, as_if_idle=True)):
            line, extra = head[3], head[3].request.extra
            has_counters = extra is None or (
                counters.has(extra, self._keepers) and self._backfill.keeper(extra) is None
            )
            if has_counters and fits(line.request, self._candidates(line.request)):
                continue
            if not has_counters:
                self._lacking_counters.append(head)
            elif self._core.patience > 0:
                self._backfill.add_waiting(head)
            if line.served > self._overdue:
                continue
            reserved = line.target.reserved_for(line.request)
            if reserved is not None:
                if extra is not None and counters.why_never(extra) is None:
                    self._keepers = {**dict.fromkeys(extra.names_of_run, head), **self._keepers}
                if has_counters and not self._backfill.protects(line, reserved):
                    found.setdefault(reserved.name, head)
        return found

    def _candidates(self, request: ResourceRequest) -> list[NodeSpec]:
        """The free part of each node; for requests of whole nodes, the idle nodes."""
        return self._idle if request.cores is None else self._free

    def _amounts(self, request: ResourceRequest) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        for name, amount in (("nodes", request.nodes), ("cores", request.cores)):
            if amount is not None:
                wanted[name] = {"min": amount.least, "max": amount.most}
        if request.gpus:
            wanted["gpus"] = request.gpus
        if request.memory:
            wanted["memory"] = request.memory
        if request.extra is not None:
            wanted |= {"gpus": request.extra.gpu_share / WHOLE_GPU} if request.extra.gpu_share else {}
            named = dict([*request.extra.on_node, *request.extra.of_run])
            wanted |= {"named": named} if named else {}
        if request.host:
            wanted["host"] = request.host
        return {
            "wanted": wanted,
            "free": totals(eligible_nodes(request, self._free), len(eligible_nodes(request, self._idle))),
            "total": totals(eligible_nodes(request, self._core.nodes)),
        }


def why_under_way(
    attempt: Attempt, since: str, cleanup: Cleanup | None = None, silent: Mapping[str, str] | None = None
) -> Reason:
    """Explain an attempt that holds resources; `since` is its start as readable text.

    `silent` has the unreachable nodes of the attempt, each with the time of its last heartbeat.
    """
    allocation = str(attempt.grant)
    details: dict[str, Any] = {"allocation": allocation, "since": since}
    if attempt.pid:
        details["pid"] = attempt.pid
    if cleanup is not None:
        waiting = sorted(cleanup.pending)
        text = f"it has ended on a part of {allocation}, and the end on other nodes is awaited: {', '.join(waiting)}"
        return Reason("leaving", text, {**details, "awaited": waiting})
    if attempt.stop_requested and not attempt.kill_requested and not silent:
        return Reason("stopping", f"it is being stopped on {allocation}, and will be started again", details)
    if attempt.kill_requested:
        return Reason("canceling", f"it is being killed on {allocation}", details)
    if not attempt.started and attempt.lane is not None and attempt.lane.first is not attempt:
        before = list(attempt.lane.attempts).index(attempt)
        text = f"it was sent ahead to {allocation} at {since}, and starts after {count(before, 'other attempt')} there"
        return Reason("starting", text, {**details, "before": before})
    named = ", ".join(f"{node} (since {last})" for node, last in (silent or {}).items())
    if not attempt.started:
        text = f"it was given {allocation} at {since} and is being started"
        if silent:
            text, details = f"{text}; no contact to {named}", {**details, "away": list(silent)}
        return Reason("starting", text, details)
    if silent:
        text = f"it was running on {allocation} since {since} (pid {attempt.pid}); no contact to {named}"
        return Reason("running", text, {**details, "away": list(silent)})
    return Reason("running", f"it runs on {allocation} since {since} (pid {attempt.pid})", details)


def why_ended(state: State, message: str, exit_code: int | None) -> Reason:
    """Explain a final job or iteration."""
    details: dict[str, Any] = {}
    if message:
        details["message"] = message
    if exit_code is not None:
        details["exitCode"] = exit_code
    if state is SUCCEED:
        return Reason("succeeded", "it has succeeded", details)
    if state is FAILED:
        return Reason("failed", f"it failed: {message or 'no reason is known'}", details)
    if state is CANCELED:
        return Reason("canceled", f"it was cancelled: {message}" if message else "it was cancelled", details)
    return Reason("omitted", f"it was never started: {message or 'what it waited for did not succeed'}", details)


def iteration_counts(job: Job) -> dict[str, int]:
    """The number of iterations of a job in each state; states without iterations are left out."""
    assert job.iterations is not None
    return counts_by_name(job.iterations.counts)


def representative_iteration(job: Job) -> int | None:
    """The position of the iteration that best explains a job: the first that waits, runs, is started, or failed."""
    assert job.iterations is not None
    order = (QUEUED, EXECUTING, SCHEDULED, FAILED, OMITTED, CANCELED)
    for state in order:
        if job.iterations.counts[state]:
            return job.iterations.states.find(state)
    return None


def _waits_for(missing: list[_Missing]) -> Reason:
    named = [one.in_words() for one in missing[:MAX_NAMED]]
    rest = len(missing) - len(named)
    if rest:
        named.append(f"{rest} more")
    listed = named[0] if len(named) == 1 else "; ".join(named[:-1]) + "; and " + named[-1]
    after = [
        {"name": one.name, "status": one.state.name, **({} if one.kind == "after" else {"kind": one.kind})}
        for one in missing
    ]
    return Reason("dependencies", f"it waits for {listed}", {"after": after})
