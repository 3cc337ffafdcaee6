"""The list of jobs: move, search, filter, sort and mark. Only the part of the list around the screen is read."""

from __future__ import annotations

from msgspec.structs import replace

from qcg.pilotjob.top.model import FILTERS, ORDERS, Effect, FetchRows, JobsList, JobsRequest, Model, Rows, Size

CHROME = 5
"""Lines of the screen that are no jobs: the header, the line about the list, its columns, the notice and the keys."""

Step = tuple[Model, tuple[Effect, ...]]


def rows_on_screen(size: Size) -> int:
    return max(1, size.height - CHROME)


def request_of(model: Model) -> JobsRequest:
    """The part of the list that is on the screen, and one screen before and after it."""
    jobs, rows = model.jobs, rows_on_screen(model.size)
    return JobsRequest(
        search=jobs.search if jobs.typed is None else jobs.typed,
        states=FILTERS[jobs.filter],
        job=jobs.job,
        order=jobs.order,
        descending=jobs.descending,
        first=max(0, jobs.first - rows),
        limit=3 * rows,
    )


def refresh(model: Model) -> tuple[Effect, ...]:
    return (FetchRows(request_of(model)),)


def open_iterations(model: Model, name: str) -> Step:
    """List the iterations of a job, if it has any."""
    details = model.job.details if model.job is not None else None
    if details is None or not details.line.iterations:
        return model, ()
    model = replace(model, view="jobs", behind=(), jobs=JobsList(job=name), marked=frozenset())
    return model, refresh(model)


def widen(model: Model) -> Step | None:
    """Remove the innermost restriction: marks, search, filter or job. None without any."""
    jobs = model.jobs
    if model.marked:
        return replace(model, marked=frozenset()), ()
    if jobs.search:
        return _changed(model, replace(jobs, search=""))
    if jobs.filter != "all":
        return _changed(model, replace(jobs, filter="all"))
    if jobs.job:
        return _changed(model, JobsList(order=jobs.order, descending=jobs.descending))
    return None


def key(model: Model, name: str) -> Step:
    jobs, page = model.jobs, rows_on_screen(model.size)
    moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page}
    if name in moves:
        return _moved(model, jobs.cursor + moves[name])
    if name in ("home", "g"):
        return _moved(model, 0)
    if name in ("end", "G"):
        return _moved(model, (jobs.rows.total if jobs.rows is not None else 1) - 1)
    if name == "/":
        return replace(model, jobs=replace(jobs, typed=jobs.search)), ()
    if name in ("s", "S"):
        return _changed(model, replace(jobs, filter=_next(tuple(FILTERS), jobs.filter, 1 if name == "s" else -1)))
    if name in ("o", "O"):
        return _changed(model, replace(jobs, order=_next(ORDERS, jobs.order, 1 if name == "o" else -1)))
    if name == "v":
        return _changed(model, replace(jobs, descending=not jobs.descending))
    if name == "i" and jobs.selected is not None and jobs.selected.iterations:
        return _changed(model, JobsList(job=jobs.selected.name))
    if name == " " and jobs.selected is not None:
        return _moved(replace(model, marked=model.marked ^ {jobs.selected.name}), jobs.cursor + 1)
    return model, ()


def typing(model: Model, name: str) -> Step:
    """A key while the search is typed: the list follows each character."""
    jobs = model.jobs
    typed = jobs.typed or ""
    if name in ("enter", "tab", "up", "down"):
        return replace(model, jobs=replace(jobs, search=typed, typed=None)), ()
    if name == "escape":
        return _changed(model, replace(jobs, typed=None))
    if name == "backspace":
        return _changed(model, replace(jobs, typed=typed[:-1]))
    if name == "ctrl-u":
        return _changed(model, replace(jobs, typed=""))
    if len(name) == 1:
        return _changed(model, replace(jobs, typed=typed + name))
    return model, ()


def arrived(model: Model, rows: Rows) -> Step:
    """Show an arrived part of the list, unless the list has changed. The selected job stays selected."""
    jobs = model.jobs
    if not rows.request.same_list(request_of(model)):
        return model, ()
    cursor = jobs.cursor
    known = jobs.selected if jobs.rows is not None and jobs.rows.request.same_list(rows.request) else None
    if known is not None and cursor > 0:
        names = [line.name for line in rows.lines]
        if known.name in names:
            cursor = rows.request.first + names.index(known.name)
    moved = replace(jobs, rows=rows, cursor=cursor, first=max(0, jobs.first + cursor - jobs.cursor))
    return settle(replace(model, jobs=moved))


def settle(model: Model) -> Step:
    """Keep the cursor in the list and on the screen, and ask for rows on the screen that are not known."""
    jobs, page = model.jobs, rows_on_screen(model.size)
    total = jobs.rows.total if jobs.rows is not None else 0
    cursor = max(0, min(jobs.cursor, total - 1))
    first = max(min(jobs.first, cursor), cursor - page + 1)
    first = max(0, min(first, total - page))
    model = replace(model, jobs=replace(jobs, cursor=cursor, first=first))
    return model, () if _is_known(model) else refresh(model)


def _is_known(model: Model) -> bool:
    """Whether all rows on the screen are known, from this list or from the one before."""
    jobs, page = model.jobs, rows_on_screen(model.size)
    if jobs.rows is None or model.view != "jobs":
        return model.view != "jobs"
    last = min(jobs.first + page, jobs.rows.total)
    return jobs.rows.request.first <= jobs.first and last <= jobs.rows.request.first + len(jobs.rows.lines)


def _moved(model: Model, cursor: int) -> Step:
    return settle(replace(model, jobs=replace(model.jobs, cursor=max(0, cursor))))


def _changed(model: Model, jobs: JobsList) -> Step:
    """Switch to another list and go to its top. The old rows stay on the screen until the new rows arrive."""
    keep = jobs.rows if jobs.job == model.jobs.job else None
    model = replace(model, jobs=replace(jobs, cursor=0, first=0, rows=keep))
    return model, refresh(model)


def _next(choices: tuple[str, ...], now: str, step: int) -> str:
    return choices[(choices.index(now) + step) % len(choices)]
