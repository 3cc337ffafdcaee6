"""The output of commands that start agents, as far as messages quote it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.safe_open import open_own

TAIL = 8192
"""Bytes at the end of the file in which the line is looked for."""
MOST_CHARACTERS = 200


def last_line(path: Path, nodes: Sequence[str] = ()) -> str:
    """The last line that names one of these nodes, else the last line; empty when there is none."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    about_nodes = [line for line in lines if any(node in line for node in nodes)]
    return printable((about_nodes or lines or [""])[-1])[:MOST_CHARACTERS].rstrip(".")
