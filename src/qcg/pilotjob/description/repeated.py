"""Keys that an object of JSON has twice: the last one counts, and what the others said is gone without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from qcg.pilotjob.description.errors import Problem, shown
from qcg.pilotjob.description.structure import join


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written."""


def repeated_keys(text: bytes) -> list[Problem]:
    try:
        return list(_repeated(json.loads(text, object_pairs_hook=_Pairs), ""))
    except (ValueError, RecursionError):
        return []  # no JSON, or nested too deeply: whoever decodes it says so


def _repeated(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            if key in seen:
                yield Problem(path, f"the key {shown(key)} is given more than once, and only the last one counts")
            seen.add(key)
            yield from _repeated(inner, join(path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{number}]")
