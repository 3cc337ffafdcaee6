"""How one program is started: what a model adds to it."""

from __future__ import annotations

import shlex

from msgspec import Struct

STEP_OPTIONS = "--overlap --mem=0 --cpu-bind=none --ntasks-per-node=1"
"""For the `srun` with which a starter of MPI programs gets its daemons to other nodes: a step that shares all it has
with the steps of other jobs, and waits for none of them."""


class Start(Struct, frozen=True):
    argv: list[str]
    env: dict[str, str] = {}
    """Besides what every job has."""
    files: dict[str, str] = {}
    """Names and texts."""
    unset: tuple[str, ...] = ()
    """Variables that must not be there, as in `host/records.py:Launch`."""
    refusal: str = ""
    """Why it cannot be started here, as a sentence."""


def without_separator(program: list[str]) -> list[str]:
    """The same program, in words that a starter of MPI programs does not misunderstand: for it, an argument that is
    just a colon begins another program."""
    return ["bash", "-c", "exec " + shlex.join(program)] if ":" in program else program
