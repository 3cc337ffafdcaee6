"""The state of the terminal view, the events that change it, and the effects that it requests.

All records are immutable. `update.handle` computes the next model from a model and an event; `render.render` draws a
model. Neither does any I/O.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Union

from msgspec import Struct

from qcg.pilotjob.report.run_summary import RunSummary
from qcg.pilotjob.watch.source import Action, JobDetails, JobLine, Output, Sort

View = Literal["overview", "jobs", "job", "output", "help"]
Order = Union[Literal["attention"], Sort]
"""An order of jobs; `attention` lists running jobs first, then failed ones."""

ORDERS: tuple[Order, ...] = ("attention", "name", "state", "submitted", "started", "ended", "duration", "memory")
FILTERS: dict[str, tuple[str, ...]] = {
    "all": (),
    "running": ("EXECUTING",),
    "failed": ("FAILED",),
    "waiting": ("QUEUED", "SCHEDULED"),
    "succeeded": ("SUCCEED",),
    "cancelled": ("CANCELED", "OMITTED"),
}
"""States of jobs by the word for them."""
TAIL = 65536
"""Bytes of an output that are read at first."""
MOST_LINES = 5000
"""Lines of an output that are kept."""
NOTICE_SECONDS = 10.0
SETTLING_SECONDS = 30.0
"""Seconds after a change during which jobs are read repeatedly: the copy of the registry lags behind the summary."""


class Size(NamedTuple):
    width: int
    height: int


class Look(Struct, frozen=True):
    """The abilities of the terminal."""

    ascii: bool = False
    colour: bool = True


class JobsRequest(Struct, frozen=True):
    """A part of the list of jobs."""

    search: str
    states: tuple[str, ...]
    job: str
    order: Order
    descending: bool
    first: int
    limit: int

    def same_list(self, other: JobsRequest) -> bool:
        """Whether both are parts of one list."""
        return all(
            getattr(self, field) == getattr(other, field)
            for field in ("search", "states", "job", "order", "descending")
        )


class Rows(Struct, frozen=True):
    """The answer to a request for a part of the list."""

    request: JobsRequest
    total: int
    lines: tuple[JobLine, ...]

    def line(self, at: int) -> JobLine | None:
        """The job at a place of the whole list, if it is in this part."""
        place = at - self.request.first
        return self.lines[place] if 0 <= place < len(self.lines) else None


class JobsList(Struct, frozen=True):
    """The list of jobs, or of the iterations of one job."""

    search: str = ""
    typed: str | None = None
    """The search while it is being typed."""
    filter: str = "all"
    order: Order = "attention"
    descending: bool = False
    job: str = ""
    """The job whose iterations are listed."""
    cursor: int = 0
    """The place of the selected job in the whole list."""
    first: int = 0
    """The place of the first job on the screen."""
    rows: Rows | None = None
    """The known part of the list; None until something has arrived."""

    @property
    def selected(self) -> JobLine | None:
        return None if self.rows is None else self.rows.line(self.cursor)


class JobView(Struct, frozen=True):
    """One job or iteration."""

    name: str
    details: JobDetails | None = None
    missing: bool = False
    """There is no such job."""
    scroll: int = 0


class OutputView(Struct, frozen=True):
    """Output of a job."""

    name: str
    stream: Literal["stdout", "stderr"] = "stdout"
    path: str = ""
    lines: tuple[str, ...] = ()
    partial: str = ""
    """The last line, if it has no line break yet."""
    next: int | None = None
    """The offset of the next read; None: the end of the file."""
    missing: bool = False
    """There is no such file."""
    follow: bool = True
    scroll: int = 0
    """Lines between the end and the last line on the screen."""
    column: int = 0

    @property
    def all_lines(self) -> tuple[str, ...]:
        return (*self.lines, self.partial) if self.partial else self.lines


class Question(Struct, frozen=True):
    """An action that waits for a confirmation."""

    action: Action
    names: tuple[str, ...]


class Notice(Struct, frozen=True):
    """A sentence at the bottom of the screen, for some seconds or until a key is pressed."""

    text: str
    bad: bool
    until: float


class Model(Struct, frozen=True):
    size: Size
    now: float
    look: Look = Look()
    summary: RunSummary | None = None
    changed: float = 0.0
    """Time of the last change of the summary, or of an action."""
    view: View = "overview"
    behind: tuple[View, ...] = ()
    """The views to go back to."""
    group: int = 0
    """The selected group in the overview: groups of failures first, then waiting ones."""
    jobs: JobsList = JobsList()
    marked: frozenset[str] = frozenset()
    job: JobView | None = None
    output: OutputView | None = None
    question: Question | None = None
    notice: Notice | None = None
    trouble: str = ""
    """Why the run cannot be read at the moment, in a sentence."""


class Key(NamedTuple):
    """A key was pressed."""

    name: str


class Resized(NamedTuple):
    size: Size


class Tick(NamedTuple):
    """Time has passed."""

    now: float


class SummaryArrived(NamedTuple):
    summary: RunSummary


class RowsArrived(NamedTuple):
    rows: Rows


class JobArrived(NamedTuple):
    name: str
    details: JobDetails | None


class OutputArrived(NamedTuple):
    wanted: FetchOutput
    output: Output | None


class ActionEnded(NamedTuple):
    """An action was carried out, or refused, with the sentence about it."""

    text: str
    refused: bool


class SourceFailed(NamedTuple):
    """The run could not be read."""

    text: str


Event = Union[Key, Resized, Tick, SummaryArrived, RowsArrived, JobArrived, OutputArrived, ActionEnded, SourceFailed]


class FetchRows(NamedTuple):
    request: JobsRequest


class FetchJob(NamedTuple):
    name: str


class FetchOutput(NamedTuple):
    """Read a stream from an offset on; None: the last part of it."""

    name: str
    stream: Literal["stdout", "stderr"]
    offset: int | None


class Act(NamedTuple):
    action: Action
    names: tuple[str, ...]


class Redraw(NamedTuple):
    """Draw the whole screen again."""


class Suspend(NamedTuple):
    """Give the terminal back to the shell until it continues this process."""


class Quit(NamedTuple):
    pass


Effect = Union[FetchRows, FetchJob, FetchOutput, Act, Redraw, Suspend, Quit]
