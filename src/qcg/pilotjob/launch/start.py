"""The command, environment and files with which an execution model starts a program."""

from __future__ import annotations

import shlex

from msgspec import Struct


class Start(Struct, frozen=True):
    """How an execution model starts one program."""

    argv: list[str]
    env: dict[str, str] = {}
    """Variables besides the variables of every job."""
    files: dict[str, str] = {}
    """Files for the launch: names and texts."""
    unset: tuple[str, ...] = ()
    """Variables that the program must not see, as in `host/records.py:Launch`."""
    refusal: str = ""
    """Why it cannot be started here, as a sentence."""


def without_separator(program: list[str]) -> list[str]:
    """The same program without arguments that are just a colon, which begin another program for MPI launchers."""
    return ["bash", "-c", "exec " + shlex.join(program)] if ":" in program else program
