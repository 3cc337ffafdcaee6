"""Submissions with the shape of their allocations, and the check against a second submission of the same run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qcg.pilotjob.batch.spec import Shape
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.runs import submissions
from qcg.pilotjob.runs.chain_state import read_note, write_note
from qcg.pilotjob.runs.submissions import SUBMISSION_FILE, jobs_under_way, submissions_of


class Submission(submissions.Submission, frozen=True):
    """One submission of a run, with what each of its allocations asks for."""

    shape: Shape


def write_submission(directory: Path, submission: Submission) -> None:
    write_note(directory, SUBMISSION_FILE, submission)


def last_shape(run_dir: Path) -> Shape | None:
    """The shape of the allocations that this run asked for last."""
    shapes = [read_note(directory, SUBMISSION_FILE, Submission) for directory, _ in submissions_of(run_dir)]
    return shapes[-1].shape if shapes and shapes[-1] is not None else None


def refuse_while_under_way(run_dir: Path, environ: Mapping[str, str]) -> None:
    """Raise BatchError while the run has batch jobs: a second allocation would be in the way of the first one."""
    jobs = jobs_under_way(run_dir, environ)
    following = [seen for seen in jobs if seen.state == "PENDING"]
    holding = [seen for seen in jobs if seen.state != "PENDING"]
    if not jobs:
        return
    said = [f"Slurm job {seen.id} still holds {seen.nodes or 'nodes'} for this run" for seen in holding]
    said += [f"Slurm job {seen.id} ({seen.state}) will go on with this run" for seen in following]
    ids = " ".join(seen.id for seen in [*holding, *following])
    raise BatchError(f"{', and '.join(said)}; wait for that, or `scancel {ids}` first. Nothing was submitted")
