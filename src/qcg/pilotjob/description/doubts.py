"""What is allowed in a description, and is hardly what its author means."""

from __future__ import annotations

import re

from qcg.pilotjob.description.errors import shown
from qcg.pilotjob.description.model import Execution, JobDescription
from qcg.pilotjob.description.variables import OF_ITERATION, references, rewrite

_TELLS_ITERATIONS_APART = frozenset({"it", "itval", "uniq"})


def doubts_about(job: JobDescription) -> list[str]:
    """Sentences."""
    return (
        _without_iterations(job.execution) if job.iteration is None else _same_files(job.execution, len(job.iteration))
    )


def _same_files(execution: Execution, iterations: int) -> list[str]:
    """Streams of all iterations that go to one file: each of them empties it, and only the last one is seen."""
    if iterations == 1:
        return []
    named: dict[str, list[str]] = {}
    for stream, path in (("stdout", execution.stdout), ("stderr", execution.stderr)):
        if path is not None and not path.startswith("/dev/"):
            named.setdefault(path, []).append(stream)
    return [
        f"all {iterations} iterations write their {' and '.join(streams)} to the same file, {shown(path)};"
        " put ${it} into its name"
        for path, streams in named.items()
        if _TELLS_ITERATIONS_APART.isdisjoint(references(_place(execution, path)))
    ]


def _place(execution: Execution, path: str) -> str:
    return path if path.startswith("/") else f"{execution.wd or ''}/{path}"


def _without_iterations(execution: Execution) -> list[str]:
    """Variables of iterations that stay as they are, because there are none."""
    found: dict[str, None] = {}

    def look(text: str) -> str:
        found.update(dict.fromkeys(name for name in references(text) if not _is_set_in(text, name)))
        return text

    rewrite(execution, look)
    names = [f"${{{name}}}" for name in found if name in OF_ITERATION and name not in execution.env]
    if not names:
        return []
    stand = "stands" if len(names) == 1 else "stand"
    return [f'{", ".join(names)} {stand} for nothing in a job without iterations; give the job an "iteration"']


def _is_set_in(text: str, name: str) -> bool:
    """A script may have a variable of its own with this name."""
    return re.search(rf"\b(?:{name}=|(?:for|read)\b[^;\n]*\b{name}\b)", text) is not None
