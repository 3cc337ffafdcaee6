"""References to the columns of a parameter file: `${row.NAME}` in the strings of a job."""

from __future__ import annotations

import re

from qcg.pilotjob.description.errors import one_line, quoted, suggestion
from qcg.pilotjob.description.iteration import RowFile
from qcg.pilotjob.description.model import JobDescription
from qcg.pilotjob.description.variables import references, texts_with_variables

_UNCLOSED = re.compile(r"(?<!\$)\$\{\s*row\.[A-Za-z0-9_.-]*(?![^{}$\n]{0,200}\})")
"""A reference without its closing brace."""


def unknown_columns(job: JobDescription) -> list[str]:
    """A sentence for each reference to a column that the parameter file of the job does not have."""
    file = _file_of(job)
    if file is None:
        return []
    names = dict.fromkeys(
        name
        for text in texts_with_variables(job.execution, job.remote)
        for name in references(text)
        if name.startswith("row.")
    )
    return [_about_unknown(name, file) for name in names if not has_column(file, name.partition(".")[2])]


def unclosed_references(job: JobDescription) -> list[str]:
    """A warning for each reference to a column that lacks its closing brace."""
    if _file_of(job) is None:
        return []
    written = dict.fromkeys(
        found for text in texts_with_variables(job.execution, job.remote) for found in _UNCLOSED.findall(text)
    )
    return [f"{found} has no closing brace and stays as it is; did you mean {found}}}?" for found in written]


def has_column(file: RowFile, key: str) -> bool:
    """Whether `${row.KEY}` is a column, or a member of the JSON object in a column."""
    return bool(key) and (key in file.columns or key.partition(".")[0] in file.columns)


def _file_of(job: JobDescription) -> RowFile | None:
    """The parameter file of a job; None also where it was not read."""
    file = None if job.iteration is None else job.iteration.rows
    return file if file is not None and file.columns else None


def _about_unknown(name: str, file: RowFile) -> str:
    key = name.partition(".")[2]
    path = one_line(file.path.rpartition("/")[2])
    hint = suggestion(key, tuple(filter(None, file.columns)))
    return f"{path} has no column {quoted(key)} for ${{{one_line(name)}}}{hint}"
