"""Contents of a report entry, and job descriptions in the form of request files."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from qcg.pilotjob.core.job_states import EXECUTING, QUEUED, SCHEDULED, State
from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.description.model import Amount, Execution, JobDescription, ModelOptions, Sharing


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

    @property
    def history(self) -> list[tuple[State, float]]:
        """States with their times in order, including the final state."""
        steps = [(QUEUED, self.submitted), (SCHEDULED, self.scheduled), (EXECUTING, self.started)]
        if self.state.is_final:
            steps.append((self.state, self.ended))
        return [(state, at) for state, at in steps if at]

    @property
    def rtime(self) -> float | None:
        """Seconds that its attempt took, None before its end."""
        return self.ended - self.started if self.grant is not None and self.started and self.ended else None


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


def _given(record: Execution | ModelOptions) -> dict[str, Any]:
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
    if request.gpus or request.memory:
        counts = {"gpu": request.gpus, "mem": request.memory}
        form["nodeCrs"] = {name: count for name, count in counts.items() if count}
    if description.wall_time is not None:
        form["wt"] = f"{description.wall_time:.9f}".rstrip("0").rstrip(".") + "s"
    return form


def dependencies_form(description: JobDescription) -> dict[str, Any]:
    """The `dependencies` of a request file; empty when there are none."""
    return {"after": list(description.after)} if description.after else {}


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
