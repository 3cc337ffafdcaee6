"""The key `mem` of a job: memory on each of its nodes, which is scheduled and enforced."""

from __future__ import annotations

import math
import re
from typing import Annotated

from msgspec import Meta

from qcg.pilotjob.description.errors import quoted, single_problem

ACCEPTED = "2GB, 1.5G, 500MB, or a number of bytes"
MOST = 2**31 - 1
"""Maximum in MiB."""

Memory = Annotated[
    str | float | int | None,
    Meta(
        description="Memory on each node, for which the job is scheduled and which it must not exceed: 2GB, 500MB, or a"
        " number of bytes. K, M, G and T are powers of 1024.",
        examples=["2GB"],
    ),
]

_FORM = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_memory(given: str | float) -> int:
    """Convert an amount of memory to MiB, rounded up; raises `DescriptionError`."""
    if isinstance(given, str):
        match = _FORM.fullmatch(given.strip())
        if match is None:
            raise single_problem(f"{quoted(given)} is not an amount of memory; write it as {ACCEPTED}")
        count = float(match[1]) * _BYTES[match[2].upper()]
    elif isinstance(given, float) and not math.isfinite(given):
        raise single_problem(f"{quoted(given)} is not an amount of memory; write it as {ACCEPTED}")
    else:
        count = given
    if count < 1 << 20:
        plain = str(given).strip()
        advice = f"{plain}MB for megabytes" if plain.isdecimal() and count else f"it as {ACCEPTED}"
        raise single_problem(
            f"{quoted(given)} is less than 1 MB; a number without a unit is a number of bytes: write {advice}"
        )
    mebibytes = int(-(-count // (1 << 20)))
    if mebibytes > MOST:
        raise single_problem(f"{quoted(given)} is more memory than any node has")
    return mebibytes
