"""Helpers for tests of descriptions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.parse import SubmissionContext, parse_jobs

CONTEXT = SubmissionContext(rcnt=7, at=datetime(2026, 11, 15, 18, 20, 10, 5), sname="eagle", uniq="u1")


def parse(*jobs: Any) -> list[JobDescription]:
    return parse_jobs(jobs, CONTEXT)


def standard(name: str = "a", resources: Any = None, **execution: Any) -> dict[str, Any]:
    """A job in the standard form that runs `date` by default."""
    job: dict[str, Any] = {"name": name, "execution": execution or {"exec": "date"}}
    return job if resources is None else {**job, "resources": resources}


def simple(**keys: Any) -> dict[str, Any]:
    """A job in the simple form that runs `date` by default."""
    return {"name": "a", **({} if "script" in keys else {"exec": "date"}), **keys}


def parse_one(job: Any) -> JobDescription:
    (description,) = parse(job)
    return description


def problems_of(*jobs: Any) -> list[str]:
    """All problems, each as `path: sentence`."""
    with pytest.raises(DescriptionError) as error:
        parse(*jobs)
    return [str(problem) for problem in error.value.problems]
