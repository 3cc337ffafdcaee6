"""Numbers among the options of commands."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """One that can be reckoned with: `nan` and `inf` are none."""

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
    """One that counts something."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number; write it in digits, such as 60", param, ctx)
        return int(super().convert(number, param, ctx))
