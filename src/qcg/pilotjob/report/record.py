"""Contents of a report entry, and job descriptions in the form of request files."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED, State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import (
    WHOLE_GPU,
    Amount,
    Execution,
    JobDescription,
    ModelOptions,
    Remote,
    RetryPolicy,
    Sharing,
)
from qcg.pilotjob.host.records import Usage
from qcg.pilotjob.journal.records import PastAttemptRecord
from qcg.pilotjob.report.formats import duration, timestamp


class IterationCounts(Struct, frozen=True, gc=False):
    """Number of iterations of a job by final state."""

    total: int
    succeed: int
    failed: int
    canceled: int
    omitted: int


class JobEnd(Struct, frozen=True, gc=False):
    """One entry of the report. For `jobInfo`, also of a job that has not ended yet."""

    name: str
    """The name of the job, or `job:INDEX` for an iteration."""
    state: State
    submitted: float
    """Epoch seconds, as the next three: when the job was queued, scheduled, started and ended; 0 before that."""
    scheduled: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    grant: Grant | None = None
    """The resources of its attempt, None without one."""
    wd: str = ""
    exit_code: int | None = None
    pid: int = 0
    """0 when no process was started."""
    pname: str = ""
    message: str = ""
    description: JobDescription | None = None
    """The description of a job; None for an iteration."""
    iterations: IterationCounts | None = None
    """Only for an iterated job."""
    value: Any = UNSET
    """The JSON value of an iteration that has one; unset for all others."""
    earlier: tuple[PastAttemptRecord, ...] = ()
    """Earlier attempts, after which it was queued again."""
    usage: Usage | None = None
    """Resource usage of its attempt; None before its end, and where it was not measured."""

    @property
    def history(self) -> list[tuple[State, float]]:
        """States with their times in order, including the final state."""
        steps = [(QUEUED, self.submitted)]
        for attempt in self.earlier:
            begun = [(SCHEDULED, attempt.scheduled or 0.0), (EXECUTING, attempt.started or 0.0)]
            ended = attempt.ended or 0.0
            if attempt.rerun_at is None:
                steps += [*begun, (QUEUED, ended)]
            else:
                steps += [*begun, (attempt.state, ended), (QUEUED, attempt.rerun_at)]
        steps += [(SCHEDULED, self.scheduled), (EXECUTING, self.started)]
        if self.state.is_final:
            steps.append((self.state, self.ended))
        return [(state, at) for state, at in steps if at]

    @property
    def rtime(self) -> float | None:
        """Seconds that its attempt took, None before its end."""
        return self.ended - self.started if self.grant is not None and self.started and self.ended else None


def cpu_efficiency(usage: Usage | None, grant: Grant | None, seconds: float | None) -> float | None:
    """CPU time of an attempt divided by the time of its cores, from 0 to 1; None if unknown.

    On several nodes, only processes on the first node count.
    """
    if usage is None or grant is None or not seconds or seconds <= 0 or len(grant.parts) != 1 or not grant.ncores:
        return None
    return usage.cpu / (seconds * grant.ncores)


def memory_of(grant: Grant) -> int:
    """Bytes of memory that a grant has on its first node; 0 when the job did not ask for memory."""
    return grant.parts[0].memory << 20 if grant.parts else 0


def usage_strings(usage: Usage | None, grant: Grant | None, seconds: float | None) -> dict[str, str]:
    """Resource usage of an attempt, all as strings; empty where it was not measured."""
    if usage is None:
        return {}
    efficiency = cpu_efficiency(usage, grant, seconds)
    return {
        "cpu_time": duration(usage.cpu),
        "user_time": duration(usage.user / 1e6),
        "system_time": duration(usage.system / 1e6),
        **({} if efficiency is None else {"cpu_efficiency": f"{efficiency:.4f}"}),
        "max_memory": str(usage.memory << 10),
        **({} if grant is None or not memory_of(grant) else {"requested_memory": str(memory_of(grant))}),
        "minor_faults": str(usage.minor_faults),
        "major_faults": str(usage.major_faults),
        "read_bytes": str(usage.read),
        "written_bytes": str(usage.written),
    }


def attempt_forms(end: JobEnd) -> list[dict[str, Any]]:
    """The earlier attempts of a job or iteration, for programs."""
    forms = []
    for number, attempt in enumerate(end.earlier, 1):
        form: dict[str, Any] = {"attempt": number, "cause": attempt.cause}
        if attempt.exit_code is not None:
            form["exit_code"] = attempt.exit_code
        if attempt.grant is not None:
            form["allocation"] = str(attempt.grant)
        for key, at in (("started", attempt.started), ("ended", attempt.ended)):
            if at:
                form[key] = timestamp(at)
        seconds = attempt.ended - attempt.started if attempt.started and attempt.ended else None
        form |= usage_strings(attempt.usage, attempt.grant, seconds)
        if attempt.message:
            form["messages"] = attempt.message
        forms.append(form)
    return forms


def retry_form(policy: RetryPolicy | None) -> dict[str, Any]:
    """The `retry` of a request file; empty for a job that is not started again."""
    if policy is None:
        return {}
    form: dict[str, Any] = {"on": policy.budgets}
    if policy.exit_codes:
        form["exit_codes"] = [first if first == last else f"{first}-{last}" for first, last in policy.exit_codes]
    if policy.delay:
        form |= {"delay": policy.delay, "factor": policy.factor, "max_delay": policy.max_delay}
    if policy.grow is not None:
        grow = {"wt": policy.grow.wall_time, "mem": policy.grow.memory, "numCores": policy.grow.cores}
        form["grow"] = {
            key: list(steps) if isinstance(steps, tuple) else steps for key, steps in grow.items() if steps is not None
        }
        if isinstance(policy.grow.memory, tuple):
            form["grow"]["mem"] = [f"{amount:.0f}MB" for amount in policy.grow.memory]
    return form


def execution_form(execution: Execution) -> dict[str, Any]:
    """The `execution` of a request file, without values that are missing or the default."""
    form = _given(execution)
    if execution.model == "default":
        del form["model"]
    options = _given(execution.model_opts)
    if options:
        form["model_opts"] = options
    else:
        del form["model_opts"]
    return form


def _given(record: Execution | ModelOptions | Remote) -> dict[str, Any]:
    return {
        name: list(value) if type(value) is tuple else value
        for name in record.__struct_fields__
        if (value := getattr(record, name))
    }


def resources_form(description: JobDescription) -> dict[str, Any]:
    """The `resources` of a request file."""
    request, sharing = description.request, description.sharing
    form: dict[str, Any] = {}
    if request.cores is not None:
        form["numCores"] = _amount(request.cores, sharing if sharing and sharing.of == "cores" else None)
    if request.nodes is not None:
        form["numNodes"] = _amount(request.nodes, sharing if sharing and sharing.of == "nodes" else None)
    extra = request.extra
    gpus = extra.gpu_share / WHOLE_GPU if extra is not None and extra.gpu_share else request.gpus
    scheduled = 0 if description.limit_memory else request.memory
    if gpus or scheduled:
        counts = {"gpu": gpus, "mem": scheduled}
        form["nodeCrs"] = {name: count for name, count in counts.items() if count}
    if description.limit_memory:
        form["mem"] = f"{request.memory}MB"
    if extra is not None and (named := [*extra.on_node, *extra.of_run]):
        form["named"] = dict(named)
    if description.wall_time is not None:
        form["wt"] = f"{description.wall_time:.9f}".rstrip("0").rstrip(".") + "s"
    return form


def remote_form(description: JobDescription) -> dict[str, Any]:
    """The `remote` of a request file; empty for a job on the nodes of the run."""
    if not description.request.host:
        return {}
    remote = description.remote or Remote()
    return {"host": description.request.host, **_given(remote)}


def dependencies_form(description: JobDescription) -> dict[str, Any]:
    """The `dependencies` of a request file; empty when there are none."""
    form: dict[str, list[str]] = {"after": list(description.after)} if description.after else {}
    for kind, entry in description.outcomes:
        form.setdefault(kind, []).append(entry)
    return form


def _amount(amount: Amount, sharing: Sharing | None) -> dict[str, Any]:
    if sharing is not None:
        scheduler: dict[str, Any] = {"name": sharing.name}
        if sharing.parts is not None:
            scheduler["params"] = {"parts": sharing.parts}
        return {"min": amount.least, "scheduler": scheduler}
    if amount.least == amount.most:
        return {"exact": amount.least}
    if amount.most is None:
        return {"min": amount.least}
    return {"min": amount.least, "max": amount.most}
