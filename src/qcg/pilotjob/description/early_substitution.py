"""Substitution of the variables that are known at submission: in names, dependencies, attributes and executions."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from qcg.pilotjob.description.column_references import unknown_columns
from qcg.pilotjob.description.errors import Problem
from qcg.pilotjob.description.forms import DependenciesForm, SimpleForm, StandardForm
from qcg.pilotjob.description.iteration import Iteration, text_of
from qcg.pilotjob.description.limits import Budget, ExpansionError, job_budget
from qcg.pilotjob.description.model import DependencyKind, Execution, JobDescription, Remote
from qcg.pilotjob.description.names import final_after, final_name
from qcg.pilotjob.description.variables import (
    count_references,
    rewrite_remote,
    substitute,
    substitute_early,
    substitute_everywhere,
    substitute_submission,
)


class Dependencies(NamedTuple):
    """The dependencies of a job as given, each with its path in the form."""

    after: list[str] | str | None
    after_path: str
    outcomes: tuple[tuple[DependencyKind, list[str] | str, str], ...] = ()


_NO_DEPENDENCIES = Dependencies(None, "")


def dependencies_of(form: StandardForm | SimpleForm, where: str) -> Dependencies:
    """The dependencies in a form at the path `where`."""
    kinds: DependenciesForm | SimpleForm | None = form if isinstance(form, SimpleForm) else form.dependencies
    if kinds is None:
        return _NO_DEPENDENCIES
    if kinds is not form:
        where = f"{where}.dependencies"
    if kinds.afterany is None and kinds.afternotok is None and kinds.afterstart is None:
        return _NO_DEPENDENCIES if kinds.after is None else Dependencies(kinds.after, f"{where}.after")
    given: list[tuple[DependencyKind, list[str] | str | None]] = [
        ("afterany", kinds.afterany),
        ("afternotok", kinds.afternotok),
        ("afterstart", kinds.afterstart),
    ]
    outcomes = tuple([(kind, names, f"{where}.{kind}") for kind, names in given if names is not None])
    return Dependencies(kinds.after, f"{where}.after", outcomes)


def finish(
    template: JobDescription,
    given: Dependencies,
    variables: dict[str, str],
    budget: Budget,
    where: str,
    problems: list[Problem],
) -> JobDescription:
    """Substitute the variables known at submission.

    `variables` is empty if the job contains none. `budget` is the budget of the submission.
    """
    if variables:
        budget = job_budget(budget)
    try:
        return _substituted(template, given, variables, budget, where, problems)
    except ExpansionError as error:
        problems.append(Problem(where, str(error)))
        return template


def _substituted(
    template: JobDescription,
    given: Dependencies,
    variables: dict[str, str],
    budget: Budget,
    where: str,
    problems: list[Problem],
) -> JobDescription:
    """Substitute variables in name, `after`, attributes and execution; `${uniq}` of an iteration is left for launch."""
    name = final_name(template.name, variables, budget, where, problems)
    known = {**variables, "jname": name} if variables else {}
    iterated = template.iteration is not None
    final: tuple[str, ...] = ()
    if given.after is not None:
        final = final_after(given.after, known, budget, iterated, given.after_path, problems)
    if given.outcomes:
        outcomes = [
            (kind, entry)
            for kind, names, path in given.outcomes
            for entry in final_after(names, known, budget, iterated, path, problems)
        ]
        template = msgspec.structs.replace(template, outcomes=tuple(outcomes))
    if not known:
        return msgspec.structs.replace(template, after=final) if final else template
    attributes = template.attributes and substitute_everywhere(template.attributes, known, budget)
    if template.iteration is not None:
        del known["uniq"]
    execution = substitute_submission(template.execution, known, budget)
    problems += [Problem(where, sentence) for sentence in unknown_columns(template)]
    if template.remote is not None:
        template = _substituted_remote(template, template.remote, known, budget)
    if template.iteration is not None and (template.iteration.values or template.iteration.names):
        # Substituted at each launch; checked here, so that a value that is too long is rejected at once.
        _check_lengths(template.iteration, execution)
    return msgspec.structs.replace(template, name=name, execution=execution, after=final, attributes=attributes)


def _check_lengths(iteration: Iteration, execution: Execution) -> None:
    """Raise ExpansionError when the longest values, wherever they are used, would exceed the limit."""
    budget = job_budget()
    for name, values in (iteration.names or {"itval": iteration.values or ()}).items():
        if used := count_references(execution, name):
            budget.spend(used * max(len(text_of(value)) for value in values))


def _substituted_remote(
    template: JobDescription, remote: Remote, known: dict[str, str], budget: Budget
) -> JobDescription:
    """Substitute variables in the keys about the remote host. Host and owner are final at submission."""
    owner = substitute(remote.owner, known, budget)
    remote = rewrite_remote(
        msgspec.structs.replace(remote, owner=owner), lambda text: substitute_early(text, known, budget)
    )
    request = msgspec.structs.replace(template.request, host=substitute(template.request.host, known, budget))
    return msgspec.structs.replace(template, request=request, remote=remote)
