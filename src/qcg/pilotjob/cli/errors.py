"""Errors that end a command with a message and an exit code."""

from __future__ import annotations

import click

from qcg.pilotjob.common.exit_codes import CANNOT_START, FAILURE


class Refusal(click.ClickException):
    """The command could not start."""

    exit_code = CANNOT_START


class Denial(click.ClickException):
    """The manager, or the state of the jobs, does not allow the action of the command."""

    exit_code = FAILURE
