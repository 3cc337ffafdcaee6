"""Drives the model of the terminal view without threads: effects are carried out at once."""

from __future__ import annotations

from collections.abc import Iterable

from qcg.pilotjob.top.model import (
    TAIL,
    Act,
    ActionEnded,
    Effect,
    Event,
    FetchJob,
    FetchOutput,
    FetchRows,
    JobArrived,
    Key,
    Look,
    Model,
    OutputArrived,
    RowsArrived,
    Size,
    SummaryArrived,
)
from qcg.pilotjob.top.paging import fetch_rows
from qcg.pilotjob.top.render import screen
from qcg.pilotjob.top.update import handle
from qcg.pilotjob.watch.source import ActionRefused
from tests.support.memory_run import NOW, MemoryRun

SMALL = Size(80, 24)
LARGE = Size(200, 50)


class Driver:
    """A model, the run that it shows, and the effects that were asked for."""

    def __init__(self, run: MemoryRun, size: Size = SMALL, look: Look | None = None) -> None:
        self.run = run
        self.model = Model(size, NOW, look or Look())
        self.effects: list[Effect] = []
        self.send(SummaryArrived(run.summary()))

    def press(self, *keys: str) -> Driver:
        for key in keys:
            self.send(Key(key))
        return self

    def send(self, event: Event) -> None:
        """Handle an event, and what follows from it."""
        self.model, effects = handle(self.model, event)
        self.effects += effects
        for effect in effects:
            for answer in self._answers(effect):
                self.send(answer)

    def _answers(self, effect: Effect) -> Iterable[Event]:
        if isinstance(effect, FetchRows):
            yield RowsArrived(fetch_rows(self.run, effect.request))
        elif isinstance(effect, FetchJob):
            yield JobArrived(effect.name, self.run.job(effect.name))
        elif isinstance(effect, FetchOutput):
            offset = -TAIL if effect.offset is None else effect.offset
            yield OutputArrived(effect, self.run.output(effect.name, effect.stream, offset, TAIL))
        elif isinstance(effect, Act):
            try:
                yield ActionEnded(self.run.act(effect.action, list(effect.names)), refused=False)
            except ActionRefused as error:
                yield ActionEnded(str(error), refused=True)

    @property
    def lines(self) -> list[str]:
        return [line.plain for line in screen(self.model, self.model.size)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
