"""What `qcg-pm run` says at its end: the closing table, and around it what a table cannot say."""

from __future__ import annotations

from qcg.pilotjob.cli.report import show_report
from qcg.pilotjob.cli.saying import tell
from qcg.pilotjob.outcome import Ending
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.rundir import discard


def tell_end(ending: Ending, *, followed: bool) -> None:
    """`followed`: another allocation goes on by itself with what is left."""
    if ending.refusals:
        nothing = "" if sum(ending.counts) else ", and nothing was run"
        tell(f"Error: {_were_refused(len(ending.refusals))}{nothing}:")
    for refusal in ending.refusals:
        tell(refusal)
    if ending.nothing_accepted:
        discard(ending.run_dir.parent, ending.run_dir)
        return
    try:
        show_report(ending.run_dir, as_json=False, ended=True)
    except ReportError as error:
        tell(str(error))
    if ending.continued == 0:
        tell("There was nothing to continue: all jobs of this run had ended. A new run runs them again.")
    earlier = ending.request_errors - len(ending.refusals)
    if earlier:
        tell(f"{_were_refused(earlier)} before this run was resumed; service.log says why.")
    if ending.left:
        tell(ending.how_it_was_left())
    elif ending.suspended:
        tell(ending.what_is_left(followed=followed))
    if ending.trouble:
        tell(f"The run could not go on: {ending.trouble}")


def _were_refused(requests: int) -> str:
    return "1 request was refused" if requests == 1 else f"{requests} requests were refused"
