"""Bad news in a sentence."""

from __future__ import annotations

import click


class Refusal(click.ClickException):
    """It could not begin."""

    exit_code = 2


class Denial(click.ClickException):
    """It could be asked, and the answer is no."""

    exit_code = 1
