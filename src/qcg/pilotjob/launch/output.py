"""The files in which the captured output of jobs is saved: `out/NAME.out` and `out/NAME.err` in the run directory.

NAME is the name of the job, with `.INDEX` for an iteration and `~2`, `~3` for further attempts. Names of jobs are free
text: characters that file names do not allow, or that could be mistaken, become `%XX` as in a URL, so that
two jobs never share a file.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from qcg.pilotjob.description.model import JobDescription

LONGEST = 200
"""Bytes of a name; an index and a suffix fit into the 255 that file systems allow."""

_UNCHANGED = re.compile(rf"[A-Za-z0-9_+-]{{1,{LONGEST}}}")
"""Names that need no escapes: most names of jobs. Tested first, because all other checks take ten times as long."""
_INDEX = re.compile(r"\.(?=[0-9]+$)")
"""The dot of a job name that would look like the dot before an index."""


def output_name(description: JobDescription, job: str, position: int, ordinal: int = 1) -> str:
    """The file name of the output of a job or one of its iterations, without the ending for the stream.

    `ordinal`: 1 for its first attempt, 2 for the second."""
    iteration = description.iteration
    further = "" if ordinal == 1 else f"~{ordinal}"
    if position < 0 or iteration is None:
        return safe_name(job) + further
    return f"{safe_name(job)}.{iteration.index(position)}{further}"


# All iterations of a job have its name.
@lru_cache(maxsize=1024)
def safe_name(job: str) -> str:
    if _UNCHANGED.fullmatch(job):
        return job
    name = "".join(
        [character if character.isprintable() and character not in "%/~" else _escaped(character) for character in job]
    )
    if name.startswith("."):
        name = "%2E" + name[1:]
    name = _INDEX.sub("%2E", name)
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: LONGEST - 17].decode(errors='ignore')}~{digest}"


def _escaped(character: str) -> str:
    return "".join([f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass")])
