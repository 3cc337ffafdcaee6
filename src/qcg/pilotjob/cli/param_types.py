"""Types of command-line options."""

from __future__ import annotations

import math
import os
import re
from typing import Any

import click

from qcg.pilotjob.cluster.registry import resource_names, sources_of_files
from qcg.pilotjob.description.limits import LARGEST

_RANGE = re.compile(r"\d+[-:,].*", re.ASCII)


class Number(click.FloatRange):
    """A finite number: `nan` and `inf` are refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number; write it in digits, such as 60 or 0.5", param, ctx)
        return float(super().convert(number, param, ctx))


class Whole(click.IntRange):
    """A whole number. `example`: one that is shown when the value is none; `about_ranges`: a clause that
    is shown instead when the value is a range or a list."""

    name = "number"

    def __init__(
        self, min: int | None = None, max: int | None = None, *, example: int = 60, about_ranges: str = ""
    ) -> None:
        super().__init__(min, max)
        self._example = example
        self._about_ranges = about_ranges

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            advice = f"write it in digits, such as {self._example}"
            if self._about_ranges and _RANGE.fullmatch(value):
                advice = self._about_ranges
            self.fail(f"{value!r} is not a whole number; {advice}", param, ctx)
        return int(super().convert(number, param, ctx))


PRIORITY = Whole(-LARGEST, LARGEST, example=10)


class GpuCount(click.FloatRange):
    """GPUs on each node: a whole number, or a part of one."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from qcg.pilotjob.description.counters import gpus_of  # here: few commands need it
        from qcg.pilotjob.description.errors import DescriptionError

        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number <= LARGEST:
            self.fail(f"{value!r} is not a number of GPUs; write it as 2, or as a part of one such as 0.5", param, ctx)
        try:
            whole, _ = gpus_of(number)
        except DescriptionError as error:
            self.fail(error.problems[0].sentence, param, ctx)
        return whole or number


class NodeSource(click.Choice[str]):
    """A value of `--resources`: a name, or `NAME:FILE` for sources of nodes that are described in a file."""

    name = "source"

    def __init__(self) -> None:
        super().__init__(resource_names())

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self._forms())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, _, path = str(value).partition(":")
        if name not in sources_of_files():
            if name in self.choices and not path:
                return str(super().convert(value, param, ctx))
            self.fail(f"{value!r} is not one of {', '.join(map(repr, self._forms()))}.", param, ctx)
        if not path:
            self.fail(f"{name} needs a file: --resources {name}:FILE", param, ctx)
        return f"{name}:{os.path.abspath(path)}"

    def _forms(self) -> list[str]:
        return [*self.choices, *(f"{name}:FILE" for name in sources_of_files())]
