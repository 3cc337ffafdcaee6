"""Handles an event of the terminal view: returns the next model, and the effects that it requests."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from qcg.pilotjob.top import job_keys, list_keys, output_keys
from qcg.pilotjob.top.actions import answer, ask
from qcg.pilotjob.top.model import (
    SETTLING_SECONDS,
    ActionEnded,
    Effect,
    Event,
    JobArrived,
    Key,
    Model,
    OutputArrived,
    Quit,
    Redraw,
    Resized,
    RowsArrived,
    SourceFailed,
    SummaryArrived,
    Suspend,
    Tick,
    View,
)
from qcg.pilotjob.top.notices import with_notice
from qcg.pilotjob.top.views.groups import groups

Step = tuple[Model, tuple[Effect, ...]]

RUN_ENDED = "The manager has ended. The view now shows the registry of the run."
RUN_RESUMED = "A manager runs again; the view is live."


def handle(model: Model, event: Event) -> Step:
    """The next model and the requested effects."""
    if isinstance(event, Key):
        return _key(replace(model, notice=None) if model.notice is not None else model, event.name)
    if isinstance(event, Tick):
        return _tick(replace(model, now=event.now))
    if isinstance(event, SummaryArrived):
        return _summary(model, event)
    if isinstance(event, RowsArrived):
        return list_keys.arrived(replace(model, trouble=""), event.rows)
    if isinstance(event, JobArrived):
        return job_keys.arrived(replace(model, trouble=""), event)
    if isinstance(event, OutputArrived):
        return output_keys.arrived(replace(model, trouble=""), event)
    if isinstance(event, Resized):
        return list_keys.settle(replace(model, size=event.size))
    if isinstance(event, SourceFailed):
        return replace(model, trouble=event.text), ()
    assert isinstance(event, ActionEnded)
    return _refreshed(replace(with_notice(model, event.text, bad=event.refused), changed=model.now))


def _tick(model: Model) -> Step:
    if model.notice is not None and model.now >= model.notice.until:
        model = replace(model, notice=None)
    settling = _refreshed(model)[1] if model.now <= model.changed + SETTLING_SECONDS else ()
    return model, (*settling, *output_keys.follow(model))


def _summary(model: Model, event: SummaryArrived) -> Step:
    before = model.summary
    model = replace(model, summary=event.summary, now=max(model.now, event.summary.at), trouble="")
    model = replace(model, changed=model.now)
    model = replace(model, group=max(0, min(model.group, len(groups(event.summary)) - 1)))
    if before is not None and before.alive is not event.summary.alive:
        model = with_notice(model, RUN_RESUMED if event.summary.alive else RUN_ENDED, bad=False)
    return _refreshed(model)


def _refreshed(model: Model) -> Step:
    """Read the data of the view again."""
    if model.view == "jobs":
        return model, list_keys.refresh(model)
    if model.view == "job":
        return model, job_keys.refresh(model)
    return model, ()


def _key(model: Model, key: str) -> Step:
    if key == "ctrl-c":
        return model, (Quit(),)
    if key == "ctrl-z":
        return model, (Suspend(),)
    if key == "ctrl-l":
        return model, (Redraw(), *_refreshed(model)[1])
    if model.question is not None:
        return answer(model, key)
    if model.view == "jobs" and model.jobs.typed is not None:
        return list_keys.typing(model, key)
    if model.view == "help":
        return (model, (Quit(),)) if key == "q" else (_back(model), ())
    if key in _EVERYWHERE:
        return _EVERYWHERE[key](model)
    return ask(model, key) or _IN_VIEW[model.view](model, key)


def _show(view: View) -> Callable[[Model], Step]:
    def show(model: Model) -> Step:
        model = replace(model, view=view, behind=())
        return (model, list_keys.refresh(model)) if view == "jobs" else (model, ())

    return show


def _other(model: Model) -> Step:
    return _show("jobs" if model.view == "overview" else "overview")(model)


def _help(model: Model) -> Step:
    return replace(model, view="help", behind=(*model.behind, model.view)), ()


def _back(model: Model) -> Model:
    if not model.behind:
        return replace(model, view="overview")
    *behind, view = model.behind
    return replace(model, view=view, behind=tuple(behind))


def _overview(model: Model, key: str) -> Step:
    found = groups(model.summary)
    if key in ("up", "k"):
        return replace(model, group=max(0, model.group - 1)), ()
    if key in ("down", "j"):
        return replace(model, group=max(0, min(model.group + 1, len(found) - 1))), ()
    if found and key in ("enter", "right"):
        return job_keys.open_job(model, found[model.group][1].example)
    if found and key == "l":
        return output_keys.open_output(model, found[model.group][1].example)
    if key == "/":
        model, effects = _show("jobs")(model)
        return list_keys.key(model, key)[0], effects
    return model, ()


def _jobs(model: Model, key: str) -> Step:
    selected = model.jobs.selected
    if selected is not None and key in ("enter", "right"):
        return job_keys.open_job(model, selected.name)
    if selected is not None and key == "l":
        return output_keys.open_output(model, selected.name)
    if key in ("escape", "left", "backspace"):
        narrowed = list_keys.widen(model)
        return narrowed if narrowed is not None else (_back(model), ())
    return list_keys.key(model, key)


def _job(model: Model, key: str) -> Step:
    assert model.job is not None
    if key in ("escape", "left", "backspace"):
        return _refreshed(_back(model))
    if key in ("l", "enter", "right"):
        return output_keys.open_output(model, model.job.name)
    if key == "i":
        return list_keys.open_iterations(model, model.job.name)
    return job_keys.scroll(model, key), ()


def _output(model: Model, key: str) -> Step:
    if key in ("escape", "backspace"):
        return _refreshed(_back(model))
    return output_keys.key(model, key)


_EVERYWHERE: dict[str, Callable[[Model], Step]] = {
    "q": lambda model: (model, (Quit(),)),
    "?": _help,
    "f1": _help,
    "1": _show("overview"),
    "2": _show("jobs"),
    "tab": _other,
    "backtab": _other,
}
_IN_VIEW: dict[str, Callable[[Model, str], Step]] = {
    "overview": _overview,
    "jobs": _jobs,
    "job": _job,
    "output": _output,
}
