"""Why jobs and iterations wait, in groups: one explanation for each queue line, not for each job."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from qcg.pilotjob.core.core_state import CoreState, name_of
from qcg.pilotjob.core.records import Job
from qcg.pilotjob.core.waiting import WaitingCounts, dependent_example, held_example, paused_example
from qcg.pilotjob.core.why import Reason, WaitExplainer
from qcg.pilotjob.description.model import JobDescription


class WaitingGroup(Struct, frozen=True):
    number: int
    reason: str
    sentence: str
    example: str


def waiting_groups(
    core: CoreState,
    waiting: WaitingCounts,
    now: float,
    most: int,
    describe: Callable[[Job], JobDescription],
    *,
    stalled: bool = False,
    show_time: Callable[[float], str] = str,
) -> list[WaitingGroup]:
    """The largest groups of waiting jobs and iterations, the largest first."""
    # Without the number of jobs ahead, which differs between the jobs of a line.
    explainer = WaitExplainer(core, now, stalled=stalled, show_time=show_time, count_ahead=lambda place: 0)

    def why(job: Job, position: int, *, of_line: bool = False) -> Reason:
        return explainer.why_waiting(job, position, describe(job), of_line=of_line)

    groups = []
    for line, number in waiting.in_lines[:most]:
        head = line.head()
        if head is not None:
            job = line.first.job
            reason = why(job, head[1], of_line=number > 1)
            groups.append(WaitingGroup(number, reason.kind, reason.sentence, name_of(job, head[1])))
    if waiting.held and core.holds.by_number:
        text = "it is held; release it with: qcg-pm release"
        groups.append(WaitingGroup(waiting.held, "held", text, held_example(core)))
    if waiting.paused:
        job, position = paused_example(core)
        groups.append(WaitingGroup(waiting.paused, "retry", why(job, position).sentence, name_of(job, position)))
    if waiting.dependent:
        found = dependent_example(core)
        text = waits_for_others(waiting.dependent, None if found is None else why(*found).sentence)
        example = "" if found is None else name_of(*found)
        groups.append(WaitingGroup(waiting.dependent, "dependencies", text, example))
    groups.sort(key=lambda group: -group.number)
    return groups[:most]


def waits_for_others(number: int, example: str | None) -> str:
    """Why jobs with dependencies wait. The jobs of the group wait for different jobs; the reason of the first is an
    example."""
    if example is None:
        return "it waits for other jobs"
    begin = "it waits for "
    return example if number == 1 else example.replace(begin, f"{begin}other jobs, for example ", 1)
