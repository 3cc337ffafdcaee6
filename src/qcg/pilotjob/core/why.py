"""Explanations of job states for `why`: what a job waits for, where it runs, how it ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.dependencies import resolve
from qcg.pilotjob.core.feasibility import capacity, count, describe_extras, describe_minimum, least, why_never
from qcg.pilotjob.core.finalize import entry_of
from qcg.pilotjob.core.job_states import CANCELED, EXECUTING, FAILED, OMITTED, QUEUED, SCHEDULED, SUCCEED, State
from qcg.pilotjob.core.queue import QueueLine
from qcg.pilotjob.core.records import Attempt, Cleanup, Job
from qcg.pilotjob.core.resources import Node, NodeSpec
from qcg.pilotjob.core.scheduler import time_left
from qcg.pilotjob.description.model import Amount, JobDescription, ResourceRequest

Kind = Literal[
    "dependencies", "agent", "stalled", "nodes", "resources", "patience", "time", "next",  # it waits
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


class WaitExplainer:
    """Explains waiting jobs at one moment; totals are computed once for all jobs asked about."""

    def __init__(self, core: CoreState, now: float, *, stalled: bool = False) -> None:
        """`stalled`: the journal cannot be written at the moment, so nothing is started."""
        self._core = core
        self._stalled = stalled
        self._overdue = now - core.patience
        self._left = time_left(core, now)
        present = [node for node in core.pool.nodes if node.available]
        self._present = [node.spec for node in present]
        self._free = [_free_of(node) for node in present]
        self._idle = [node.spec for node in present if node.is_idle]
        self._blocker = self._find_blocker()
        self._counted = False
        """Whether `_before` was called once already."""
        self._in_order: list[int] = []
        """Numbers of all queued jobs in order; only built from the second call of `_before` on."""
        self._dependents: dict[Job, frozenset[Job]] = {}

    def why_waiting(self, job: Job, position: int, description: JobDescription) -> Reason:
        """Explain a QUEUED job without iterations (position -1) or a QUEUED iteration."""
        missing = list(self._missing(job, position, description))
        if missing:
            return _waits_for(missing)
        entry = entry_of(job, position)
        line, request = entry.line, entry.line.request
        details = self._amounts(request)
        if self._stalled:
            text = "it waits because the journal cannot be written at the moment; see service.log"
            return Reason("stalled", text, details)
        if self._left <= 0:
            text = "it waits for the next manager of this run: the time of this one is over, so nothing is started"
            return Reason("time", text, details)
        if entry.wall_time > self._left:
            text = (
                f"it waits for the next manager of this run: its wall time is {entry.wall_time:.0f} s,"
                f" and this manager has only {self._left:.0f} s left"
            )
            return Reason("time", text, {**details, "wallTime": entry.wall_time, "timeLeft": self._left})
        if line.never is not None:
            text = f"it waits for other nodes: {line.never}; the next manager of this run may have more"
            return Reason("nodes", text, {**details, "away": []})
        if not self._present:
            return Reason("agent", "it waits for an agent: none is connected, so nothing can be started", details)
        never = why_never(request, self._present)
        if never is not None:
            away = [spec.name for spec in self._core.nodes if spec not in self._present]
            lost = [name for name in away if name in self._core.lost_nodes]
            state = "away" if not lost else "lost" if lost == away else "away, some of them lost"
            text = f"it waits for nodes that are {state} ({', '.join(away)}); on the available nodes: {never}"
            return Reason("nodes", text, {**details, "away": away, "lost": lost})
        if self._is_free(request):
            return self._could_start(job, position, request, details)
        return self._waits_for_resources(job, position, line, details)

    # -- dependencies -----------------------------------------------------------------------------------------------

    def _missing(self, job: Job, position: int, description: JobDescription) -> Iterator[tuple[str, State]]:
        """The prerequisites that have not succeeded yet. A prerequisite that was removed since had succeeded."""
        if job.unmet is None:
            return
        indices = job.iterations.indices if job.iterations is not None else None
        for entry in description.after:
            found = resolve(job.name, entry, indices, self._core.jobs)
            if isinstance(found, str) or not self._waits(job, found.job):
                continue
            other = found.job
            other_position = -1 if found.position is None else found.position
            if found.same_index:
                assert indices is not None
                assert other.iterations is not None
                other_position = other.iterations.indices.index(indices[position])
            state = self._core.state_of(other, other_position)
            if not state.is_final:
                yield name_of(other, other_position), state

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
            found = self._dependents[other] = frozenset(chain.from_iterable(kinds))
        return job in found

    # -- resources --------------------------------------------------------------------------------------------------

    def _waits_for_resources(self, job: Job, position: int, line: QueueLine, details: dict[str, Any]) -> Reason:
        request = line.request
        free = capacity(request, self._candidates(request))
        exist = capacity(request, self._present)
        wanted = _wanted(request)
        if request.nodes is None and request.one_node:
            text = f"it needs {wanted}, and no such node has more than {free} of its cores free"
        else:
            text = f"it needs {wanted}, and {free} of {exist} {'is' if free == 1 else 'are'} free"
        before = self._before(job)
        if before:
            text += f"; {count(before, 'job')} ahead of it"
        if self._blocker is not None and self._blocker[:2] == (job.seq, position):
            text += f"; it has waited longer than the patience of {self._core.patience:g} s, so free resources are"
            text += " kept for it"
        return Reason("resources", text, {**details, "before": before})

    def _could_start(self, job: Job, position: int, request: ResourceRequest, details: dict[str, Any]) -> Reason:
        if self._blocker is not None and self._blocker[:2] < (job.seq, position):
            _, blocking, _, line = self._blocker
            name = name_of(line.first.job, blocking)
            text = (
                f"its request, {_wanted(request)}, fits, but it may not overtake {name!r}, which needs"
                f" {_wanted(line.request)} and has waited longer than the patience of {self._core.patience:g} s"
            )
            return Reason("patience", text, {**details, "behind": name})
        return Reason("next", f"its request, {_wanted(request)}, fits: it is about to start", details)

    def _find_blocker(self) -> tuple[int, int, int, QueueLine] | None:
        """The head of the line that later jobs may not overtake, by the rule of the scheduler."""
        for head in sorted(self._core.queue.heads(self._core.pool.free_cores, self._overdue, self._left)):
            line = head[3]
            is_possible_now = why_never(line.request, self._present) is None
            if line.served <= self._overdue and is_possible_now and not self._is_free(line.request):
                return head
        return None

    def _before(self, job: Job) -> int:
        """The number of earlier jobs in the queue."""
        lines = self._core.queue.lines.values()
        if not self._counted:
            self._counted = True
            return sum([line.entries.before(job.seq) for line in lines])
        if not self._in_order:
            self._in_order = sorted([entry.job.seq for line in lines for entry in line.entries])
        return bisect_left(self._in_order, job.seq)

    def _is_free(self, request: ResourceRequest) -> bool:
        return least(request) <= capacity(request, self._candidates(request))

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
        return {"wanted": wanted, "free": _totals(self._free, len(self._idle)), "total": _totals(self._core.nodes)}


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
    if attempt.stopped and not attempt.killed:
        return Reason("stopping", f"it is being stopped on {allocation}, and will be started again", details)
    if attempt.killed:
        return Reason("canceling", f"it is being killed on {allocation}", details)
    if not attempt.started and attempt.lane is not None and attempt.lane.first is not attempt:
        before = list(attempt.lane.attempts).index(attempt)
        text = f"it was sent ahead to {allocation} at {since}, and starts after {count(before, 'other attempt')} there"
        return Reason("starting", text, {**details, "before": before})
    if not attempt.started:
        return Reason("starting", f"it was given {allocation} at {since} and is being started", details)
    if silent:
        named = ", ".join(f"{node} (since {last})" for node, last in silent.items())
        text = f"it was running on {allocation} since {since} (pid {attempt.pid}); no contact to {named}"
        return Reason("running", text, {**details, "away": list(silent)})
    return Reason("running", f"it runs on {allocation} since {since} (pid {attempt.pid})", details)


def why_left(attempt: Attempt | None, *, interrupted: bool = False) -> Reason:
    """Explain a job that is not final in a run without a manager.

    `interrupted`: an attempt had started and was stopped when the manager shut down.
    """
    if attempt is None and interrupted:
        return Reason(
            "left", "it was stopped when its manager ended; a manager that resumes the run starts it again", {}
        )
    if attempt is None:
        return Reason(
            "left", "it had not been started when its manager ended; a manager that resumes the run starts it", {}
        )
    where = (
        f"it was on {attempt.grant} (pid {attempt.pid})" if attempt.pid else f"it was to be started on {attempt.grant}"
    )
    return Reason("left", f"{where} when its manager ended; a manager that resumes the run finds out how it ended", {})


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
    return {state.name: job.iterations.counts[state] for state in State if job.iterations.counts[state]}


def representative_iteration(job: Job) -> int | None:
    """The position of the iteration that best explains a job: the first that waits, runs, is started, or failed."""
    assert job.iterations is not None
    order = (QUEUED, EXECUTING, SCHEDULED, FAILED, OMITTED, CANCELED)
    for state in order:
        if job.iterations.counts[state]:
            return job.iterations.states.find(state)
    return None


def _waits_for(missing: list[tuple[str, State]]) -> Reason:
    named = [f"{name!r}, which is {state.name}" for name, state in missing[:MAX_NAMED]]
    rest = len(missing) - len(named)
    if rest:
        named.append(f"{rest} more")
    listed = named[0] if len(named) == 1 else "; ".join(named[:-1]) + "; and " + named[-1]
    after = [{"name": name, "status": state.name} for name, state in missing]
    return Reason("dependencies", f"it waits for {listed}", {"after": after})


def _wanted(request: ResourceRequest) -> str:
    """A request in words: `at least 2 nodes with 3 cores each and 1 GPU`."""
    whole = "whole " if request.cores is None else ""
    words = describe_minimum(request).replace("node", f"{whole}node", 1) if whole else describe_minimum(request)
    besides = describe_extras(request)
    open_ended = any(_is_range(amount) for amount in (request.nodes, request.cores) if amount is not None)
    return ("at least " if open_ended else "") + words + (f" and {besides}" if besides else "")


def _is_range(amount: Amount) -> bool:
    return amount.most != amount.least


def _free_of(node: Node) -> NodeSpec:
    """The free part of a node, as a node of its own."""
    cores = tuple([core for core, bit in node.bits.items() if node.free & bit])
    return NodeSpec(node.spec.name, cores, tuple(node.gpus), max(node.memory, 0))


def _totals(nodes: list[NodeSpec] | tuple[NodeSpec, ...], whole: int | None = None) -> dict[str, int]:
    totals = {"nodes": len(nodes) if whole is None else whole, "cores": sum(len(node.cores) for node in nodes)}
    gpus = sum(len(node.gpus) for node in nodes)
    return {**totals, "gpus": gpus} if gpus else totals
