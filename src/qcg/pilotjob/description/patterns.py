"""Constraints that stand only in the JSON Schema: of values that the parser itself refuses with a sentence.

Patterns are in the syntax of JavaScript, which editors use: no flags and no named groups. White space around a value
is ignored, as in the parser.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qcg.pilotjob.description.memory import MOST
from qcg.pilotjob.description.walltime import LONGEST

_N = "[0-9]{1,10}"
_SECONDS = rf"{_N}(?:\.[0-9]{{1,9}})?"
_TIMES = (
    _SECONDS,
    rf"(?:{_N}[dD])?\s*(?:{_N}[hH])?\s*(?:{_N}[mM])?\s*(?:{_SECONDS}[sS])?",
    rf"(?:{_N}-(?=[01]?[0-9]:|2[0-3]:))?{_N}:[0-5][0-9]:[0-5][0-9]",
    rf"[pP](?:{_N}[dD])?(?:[tT](?=[0-9])(?:{_N}[hH])?(?:{_N}[mM])?(?:{_SECONDS}[sS])?)?",
)
_TIME = rf"^\s*(?=[pPtT]*[0-9])(?:{'|'.join(_TIMES)})\s*$"
_CODE = r"0*(?:[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])"

WALL_TIME: dict[str, Any] = {"pattern": _TIME, "exclusiveMinimum": 0, "maximum": LONGEST}
DURATION: dict[str, Any] = {"pattern": _TIME, "minimum": 0, "maximum": LONGEST}
MEMORY: dict[str, Any] = {
    "pattern": r"^\s*[0-9]{1,18}(?:\.[0-9]{1,9})? ?(?:[kKmMgGtT]?(?:[iI]?[bB])?)\s*$",
    "minimum": 1 << 20,
    "maximum": MOST << 20,
}
EXIT_CODE: dict[str, Any] = {"pattern": rf"^\s*{_CODE}\s*(?:-\s*{_CODE}\s*)?$", "minimum": 1, "maximum": 255}
COUNTER_NAME = "^[A-Za-z][A-Za-z0-9_.-]{0,59}$"


def ignoring_case(names: Iterable[str]) -> dict[str, Any]:
    """A schema that suggests these names and accepts them in any case."""
    known = list(names)
    pattern = "|".join("".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in known)
    return {"anyOf": [{"enum": known}, {"pattern": f"^({pattern})$"}]}
