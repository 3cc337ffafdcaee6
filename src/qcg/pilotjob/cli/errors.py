"""Bad news in a sentence."""

from __future__ import annotations

import click

from qcg.pilotjob.common.exit_codes import CANNOT_START, FAILURE


class Refusal(click.ClickException):
    """It could not begin."""

    exit_code = CANNOT_START


class Denial(click.ClickException):
    """It could be asked, and the answer is no."""

    exit_code = FAILURE
