"""Quotes the output of the commands that start agents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.host.safe_open import open_own

LOG_TAIL = 8192
"""Bytes at the end of the log in which a line to quote is searched."""
MOST_QUOTED = 200
"""Characters of a line that a message quotes."""


def last_line(path: Path, nodes: Sequence[str] = ()) -> str:
    """The last line of a log that names one of these nodes, else its last line; empty if there is none."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LOG_TAIL, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    about_nodes = [line for line in lines if any(node in line for node in nodes)]
    return printable((about_nodes or lines or [""])[-1])[:MOST_QUOTED].rstrip(".")
