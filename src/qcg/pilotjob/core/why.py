"""Why a job is where it is: what it waits for, what it runs on, how it ended; a sentence, and fields for programs."""

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

MOST_NAMED = 3
"""Jobs that a sentence names; the fields have all of them."""


class Reason(Struct, frozen=True):
    kind: Kind
    sentence: str
    """`it` is the job."""
    details: dict[str, Any] = {}


class WaitExplainer:
    """The books at one moment. What has to be counted is counted once, however many jobs are asked about."""

    def __init__(self, core: CoreState, now: float, *, stalled: bool = False) -> None:
        """`stalled`: nothing can be written at the moment, so nothing is started."""
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
        """How many came before a job."""
        self._in_order: list[int] = []
        """The numbers of all jobs that stand in lines, once this is asked of several."""
        self._dependents: dict[Job, frozenset[Job]] = {}

    def why_waiting(self, job: Job, position: int, description: JobDescription) -> Reason:
        """Of a job without iterations, or of one iteration, that is QUEUED."""
        missing = list(self._missing(job, position, description))
        if missing:
            return _waits_for(missing)
        entry = entry_of(job, position)
        line, request = entry.line, entry.line.request
        details = self._amounts(request)
        if self._stalled:
            text = "it waits because nothing can be written at the moment; service.log says why"
            return Reason("stalled", text, details)
        if self._left <= 0:
            text = "it waits for the next manager of this run: the time of this one is over, so nothing is started"
            return Reason("time", text, details)
        if entry.wall_time > self._left:
            text = (
                f"it waits for the next manager of this run: it may take {entry.wall_time:.0f} s,"
                f" and only {self._left:.0f} s are left of the time of this one"
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
            text = f"it waits for nodes that are {state} ({', '.join(away)}); on those that are there: {never}"
            return Reason("nodes", text, {**details, "away": away, "lost": lost})
        if self._is_free(request):
            return self._could_start(job, position, request, details)
        return self._waits_for_resources(job, position, line, details)

    # -- dependencies -----------------------------------------------------------------------------------------------

    def _missing(self, job: Job, position: int, description: JobDescription) -> Iterator[tuple[str, State]]:
        """The names that it still waits for. One that was removed since had succeeded."""
        if job.unmet is None:
            return
        indices = job.iterations.indices if job.iterations is not None else None
        for entry in description.after:
            found = resolve(job.name, entry, indices, self._core.jobs)
            if isinstance(found, str) or not self._waits(job, found.job):
                continue
            other = found.job
            place = -1 if found.position is None else found.position
            if found.same_index:
                assert indices is not None
                assert other.iterations is not None
                place = other.iterations.indices.index(indices[position])
            state = self._core.state_of(other, place)
            if not state.is_final:
                yield name_of(other, place), state

    def _waits(self, job: Job, other: Job) -> bool:
        """Whether this very job is waited for, and not another one that has its name now."""
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
            text = f"it wants {wanted}, and no such node has more than {free} of its cores free"
        else:
            text = f"it wants {wanted}, and {free} of {exist} {'is' if free == 1 else 'are'} free"
        before = self._before(job)
        if before:
            text += f"; {count(before, 'job')} came before it"
        if self._blocker is not None and self._blocker[:2] == (job.seq, position):
            text += (
                f"; it has waited so long (patience {self._core.patience:g} s) that what becomes free is kept for it"
            )
        return Reason("resources", text, {**details, "before": before})

    def _could_start(self, job: Job, position: int, request: ResourceRequest, details: dict[str, Any]) -> Reason:
        if self._blocker is not None and self._blocker[:2] < (job.seq, position):
            _, blocking, _, line = self._blocker
            name = name_of(line.first.job, blocking)
            text = (
                f"what it wants, {_wanted(request)}, is free, but nothing overtakes {name!r} any more: that wants"
                f" {_wanted(line.request)} and has waited longer than the patience of {self._core.patience:g} s"
            )
            return Reason("patience", text, {**details, "behind": name})
        return Reason("next", f"what it wants, {_wanted(request)}, is free: it is started now", details)

    def _find_blocker(self) -> tuple[int, int, int, QueueLine] | None:
        """The head of the line that nobody behind it may overtake, as the scheduler sees it."""
        for head in sorted(self._core.queue.heads(self._core.pool.free_cores, self._overdue, self._left)):
            line = head[3]
            could_be_given = why_never(line.request, self._present) is None
            if line.served <= self._overdue and could_be_given and not self._is_free(line.request):
                return head
        return None

    def _before(self, job: Job) -> int:
        """How many jobs that could be started as well came earlier."""
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
        """What is free of each node; of nodes that are wanted whole, those where nothing is taken."""
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
    """Of a run that holds resources; `since` is when it began, as people read it.

    `silent`: those of its nodes that are away, each with the time at which it was heard of last.
    """
    allocation = str(attempt.grant)
    details: dict[str, Any] = {"allocation": allocation, "since": since}
    if attempt.pid:
        details["pid"] = attempt.pid
    if cleanup is not None:
        waiting = sorted(cleanup.pending)
        text = (
            f"it is over on a part of {allocation}, and what became of it on the rest is awaited: {', '.join(waiting)}"
        )
        return Reason("leaving", text, {**details, "awaited": waiting})
    if attempt.stopped and not attempt.killed:
        return Reason("stopping", f"it is being ended, on {allocation}, and will be run again", details)
    if attempt.killed:
        return Reason("canceling", f"it is being ended, on {allocation}", details)
    if not attempt.started and attempt.lane is not None and attempt.lane.first is not attempt:
        before = list(attempt.lane.attempts).index(attempt)
        text = f"it stands behind {count(before, 'other attempt')} on {allocation} since {since}, and is started after "
        return Reason("starting", text + ("it" if before == 1 else "them"), {**details, "before": before})
    if not attempt.started:
        return Reason("starting", f"it was given {allocation} at {since} and is being started", details)
    if silent:
        named = ", ".join(f"{node} (since {last})" for node, last in silent.items())
        text = f"it ran on {allocation} since {since} (pid {attempt.pid}); nothing is heard of {named}"
        return Reason("running", text, {**details, "away": list(silent)})
    return Reason("running", f"it runs on {allocation} since {since} (pid {attempt.pid})", details)


def why_left(attempt: Attempt | None, *, interrupted: bool = False) -> Reason:
    """Of what has not ended, as far as is known, in a run without a manager. `interrupted`: it has been started, and
    was ended before its time."""
    if attempt is None and interrupted:
        return Reason("left", "it was ended with its manager; one that resumes the run starts it again", {})
    if attempt is None:
        return Reason("left", "it had not been started when its manager went; one that resumes the run starts it", {})
    where = (
        f"it was on {attempt.grant} (pid {attempt.pid})" if attempt.pid else f"it was to be started on {attempt.grant}"
    )
    return Reason("left", f"{where} when its manager went; a manager that resumes the run knows how it ended", {})


def why_ended(state: State, message: str, exit_code: int | None) -> Reason:
    """Of what is final."""
    details: dict[str, Any] = {}
    if message:
        details["message"] = message
    if exit_code is not None:
        details["exitCode"] = exit_code
    if state is SUCCEED:
        return Reason("succeeded", "it has succeeded", details)
    if state is FAILED:
        return Reason("failed", f"it failed: {message or 'nobody said why'}", details)
    if state is CANCELED:
        return Reason("canceled", f"it was cancelled: {message}" if message else "it was cancelled", details)
    return Reason("omitted", f"it was never started: {message or 'what it waited for did not succeed'}", details)


def iteration_counts(job: Job) -> dict[str, int]:
    """How many iterations of a job are in which state; those in which none is are left out."""
    assert job.iterations is not None
    return {state.name: job.iterations.counts[state] for state in State if job.iterations.counts[state]}


def representative_iteration(job: Job) -> int | None:
    """The iteration of a job that tells most about it: the first that waits, runs or is started; or that failed."""
    assert job.iterations is not None
    order = (QUEUED, EXECUTING, SCHEDULED, FAILED, OMITTED, CANCELED)
    for state in order:
        if job.iterations.counts[state]:
            return job.iterations.states.find(state)
    return None


def _waits_for(missing: list[tuple[str, State]]) -> Reason:
    named = [f"{name!r}, which is {state.name}" for name, state in missing[:MOST_NAMED]]
    rest = len(missing) - len(named)
    if rest:
        named.append(f"{rest} more")
    listed = named[0] if len(named) == 1 else "; ".join(named[:-1]) + "; and " + named[-1]
    after = [{"name": name, "status": state.name} for name, state in missing]
    return Reason("dependencies", f"it waits for {listed}", {"after": after})


def _wanted(request: ResourceRequest) -> str:
    """All of it in words: `at least 2 nodes with 3 cores each and 1 GPU`."""
    whole = "whole " if request.cores is None else ""
    words = describe_minimum(request).replace("node", f"{whole}node", 1) if whole else describe_minimum(request)
    besides = describe_extras(request)
    open_ended = any(_is_range(amount) for amount in (request.nodes, request.cores) if amount is not None)
    return ("at least " if open_ended else "") + words + (f" and {besides}" if besides else "")


def _is_range(amount: Amount) -> bool:
    return amount.most != amount.least


def _free_of(node: Node) -> NodeSpec:
    """A node that has nothing but what is free of this one."""
    cores = tuple([core for core, bit in node.bits.items() if node.free & bit])
    return NodeSpec(node.spec.name, cores, tuple(node.gpus), max(node.memory, 0))


def _totals(nodes: list[NodeSpec] | tuple[NodeSpec, ...], whole: int | None = None) -> dict[str, int]:
    totals = {"nodes": len(nodes) if whole is None else whole, "cores": sum(len(node.cores) for node in nodes)}
    gpus = sum(len(node.gpus) for node in nodes)
    return {**totals, "gpus": gpus} if gpus else totals
