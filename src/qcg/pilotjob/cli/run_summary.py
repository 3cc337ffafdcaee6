"""The output of `qcg-pm run` at the end of a run: refusals, the closing table, and the resume hint."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from qcg.pilotjob.cli.console import echo_err
from qcg.pilotjob.cli.report_output import show_report
from qcg.pilotjob.cli.tables import show_json
from qcg.pilotjob.cluster.registry import submit_command
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.core.job_states import counts_by_name
from qcg.pilotjob.core.shutdown import Cause
from qcg.pilotjob.manager.run_result import RunResult
from qcg.pilotjob.report.analysis import analyse
from qcg.pilotjob.report.errors import ReportError
from qcg.pilotjob.report.run_report import RunReport
from qcg.pilotjob.runs.rundir import discard


def print_summary(ending: RunResult, *, followed: bool, as_json: bool = False) -> None:
    """Print the end of a run. `followed`: another allocation continues with the jobs that are left."""
    if ending.requests.refusals:
        nothing = "" if sum(ending.counts) else ", and nothing was run"
        echo_err(f"Error: {_were_refused(len(ending.requests.refusals))}{nothing}:")
    for refusal in ending.requests.refusals:
        echo_err(refusal)
    if ending.nothing_accepted:
        discard(ending.run_dir.parent, ending.run_dir)
        if as_json:
            show_json({**run_result(ending, None), "directory": None})
        return
    try:
        if as_json:
            show_json(run_result(ending, analyse(ending.run_dir, ended=True)))
        else:
            show_report(ending.run_dir, as_json=False, ended=True)
    except ReportError as error:
        echo_err(str(error))
        if as_json:
            show_json(run_result(ending, None))
    if ending.continued == 0:
        echo_err(
            "There was nothing to continue: all jobs of this run had ended. To run jobs again that have not succeeded,"
            " give --rerun failed, or --rerun all."
        )
    earlier = ending.requests.errors - len(ending.requests.refusals)
    if earlier:
        echo_err(f"{_were_refused(earlier)} before this run was resumed; see service.log.")
    if ending.end.cause in (Cause.NO_HOST, Cause.DEFECT) and not ending.jobs_left:
        echo_err(f"The run could not continue: {ending.end.reason}")
    if last_line := ending.last_line(followed=followed):
        echo_err(last_line)


def run_result(ending: RunResult, report: RunReport | None) -> dict[str, Any]:
    """The output of `run --json`; there is no report when the registry cannot be read."""
    command = submit_command(ending.batch_system) if ending.allocation else "qcg-pm run"
    return {
        "directory": str(ending.run_dir),
        "exit_code": ending.exit_code,
        "jobs": counts_by_name(ending.counts),
        "jobs_left": ending.jobs_left,
        "resume": f"{command} --resume {shlex.quote(str(ending.run_dir))}" if ending.jobs_left else None,
        "refusals": ending.requests.refusals,
        "trouble": ending.end.reason if ending.end.cause in (Cause.NO_HOST, Cause.DEFECT) else None,
        "report": msgspec.to_builtins(report),
    }


def _were_refused(requests: int) -> str:
    return pluralize(requests, "request was refused", "requests were refused")
