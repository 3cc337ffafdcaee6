"""One job: opening it and scrolling in its details."""

from __future__ import annotations

from msgspec.structs import replace

from qcg.pilotjob.top.model import Effect, FetchJob, JobArrived, JobView, Model
from qcg.pilotjob.top.views.body import body_height
from qcg.pilotjob.top.views.job import job_lines


def open_job(model: Model, name: str) -> tuple[Model, tuple[Effect, ...]]:
    model = replace(model, view="job", behind=(*model.behind, model.view), job=JobView(name))
    return model, refresh(model)


def refresh(model: Model) -> tuple[Effect, ...]:
    return (FetchJob(model.job.name),) if model.job is not None else ()


def arrived(model: Model, event: JobArrived) -> tuple[Model, tuple[Effect, ...]]:
    if model.job is None or model.job.name != event.name:
        return model, ()
    job = replace(model.job, details=event.details, missing=event.details is None)
    return replace(model, job=job), ()


def scroll(model: Model, key: str) -> Model:
    assert model.job is not None
    page = body_height(model.size)
    last = max(0, len(job_lines(model, model.size.width)) - page)
    places = {
        **dict.fromkeys(("up", "k"), model.job.scroll - 1),
        **dict.fromkeys(("down", "j"), model.job.scroll + 1),
        "pageup": model.job.scroll - page,
        **dict.fromkeys(("pagedown", " "), model.job.scroll + page),
        **dict.fromkeys(("home", "g"), 0),
        **dict.fromkeys(("end", "G"), last),
    }
    place = places.get(key, model.job.scroll)
    return replace(model, job=replace(model.job, scroll=max(0, min(place, last))))
