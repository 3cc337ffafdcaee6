"""Explanations of jobs that are not final in a run without a manager."""

from __future__ import annotations

from msgspec import Struct

from qcg.pilotjob.core.job_states import QUEUED
from qcg.pilotjob.core.records import Attempt
from qcg.pilotjob.core.why import Reason


class HeldPrerequisite(Struct, frozen=True):
    """A prerequisite that does not start before a release."""

    name: str
    is_held: bool
    """Whether it is held itself; otherwise it waits for a held job."""


def why_left(
    attempt: Attempt | None,
    *,
    interrupted: bool = False,
    held_since: str = "",
    prerequisite: HeldPrerequisite | None = None,
) -> Reason:
    """Explain a job that is not final in a run without a manager.

    `interrupted`: an attempt had started and was stopped when the manager shut down. `held_since`: since when it is
    held, as readable text; empty if it is not. `prerequisite`: the held job that it waits for.
    """
    if attempt is None and held_since:
        text = f"it is held since {held_since}; qcg-pm run --resume DIR --release continues with it"
        return Reason("held", text, {"since": held_since})
    if attempt is None and prerequisite is not None:
        why = "is held" if prerequisite.is_held else "waits for a held job"
        after = [{"name": prerequisite.name, "status": QUEUED.name}]
        return Reason("dependencies", f"it waits for {prerequisite.name!r}, which {why}", {"after": after})
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
