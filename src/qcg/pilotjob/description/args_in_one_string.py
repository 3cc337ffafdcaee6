"""Warnings about `args` that is one string with blanks: allowed, and probably meant as several arguments.

Parsed descriptions have lists only, so descriptions are read as they were written.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from qcg.pilotjob.description.errors import quoted

_IS_STRING = re.compile(rb'"args"\s*:\s*"')


class _Written(msgspec.Struct):
    """The part of a description that is looked at."""

    name: Any = None
    args: Any = None


_decode = msgspec.json.Decoder(_Written).decode


def one_argument_with_blanks(args: Any) -> str:
    """A warning about the value of `args`; empty for a list, and for a string without blanks."""
    if not isinstance(args, str) or " " not in args.strip():
        return ""
    return f"{quoted(args)} is one argument with blanks in it; write a list for several"


def warning_about_args(job: msgspec.Raw) -> tuple[str, str] | None:
    """The name of a valid job, and the warning about its `args`. The search is faster than decoding."""
    if not _IS_STRING.search(bytes(job)):
        return None
    written = _decode(job)
    warning = one_argument_with_blanks(written.args)
    return (str(written.name), warning) if warning else None
