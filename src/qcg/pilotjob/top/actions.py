"""Cancel, rerun, hold and release: requested with a key, carried out after a confirmation."""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from qcg.pilotjob.top.model import Act, Effect, Model, Question
from qcg.pilotjob.top.notices import with_notice
from qcg.pilotjob.watch.source import Action

ACTIONS: dict[str, Action] = {"c": "cancel", "r": "rerun", "h": "hold", "u": "release"}
"""Actions by key."""


def ask(model: Model, key: str) -> tuple[Model, tuple[Effect, ...]] | None:
    """The model with a question, or with the reason why the action cannot be done. None for other keys and views."""
    action = ACTIONS.get(key)
    if action is None:
        return None
    names = _targets(model)
    if not names:
        return None
    if model.summary is None or not model.summary.alive:
        return with_notice(model, why_refused(model, action), bad=True), ()
    return replace(model, question=Question(action, names)), ()


def why_refused(model: Model, action: Action) -> str:
    """Why an action cannot be done without a manager, and what to do."""
    reason = f"This run has no manager, so it cannot {action} jobs."
    if model.summary is None:
        return "The run has not been read yet: try again in a moment."
    return f"{reason} Continue the run with: qcg-pm run --resume {shlex.quote(model.summary.directory)}"


def answer(model: Model, key: str) -> tuple[Model, tuple[Effect, ...]]:
    """The model after an answer to the confirmation; only `y` confirms."""
    question = model.question
    assert question is not None
    if key in ("y", "Y"):
        return replace(model, question=None, marked=frozenset()), (Act(question.action, question.names),)
    if key in ("n", "N", "escape", "q"):
        return with_notice(replace(model, question=None), "Nothing was changed.", bad=False), ()
    return model, ()


def _targets(model: Model) -> tuple[str, ...]:
    """The jobs that an action applies to: the job shown, the marked jobs, or the selected job."""
    if model.view in ("job", "output"):
        shown = model.job if model.view == "job" else model.output
        return (shown.name,) if shown is not None else ()
    if model.view == "jobs":
        if model.marked:
            return tuple(sorted(model.marked))
        return (model.jobs.selected.name,) if model.jobs.selected is not None else ()
    return ()
