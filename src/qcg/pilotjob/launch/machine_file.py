"""The machine file of a job: a line with the node's name for each core."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.host.records import SHARED

OWN_NAME = "machines"


def machine_file(grant: Grant) -> tuple[str, str]:
    """Name and text of the machine file. Jobs with the same number of cores on the same single node share one, so that
    small jobs do not need a file each."""
    parts = grant.parts
    if len(parts) == 1:
        return _shared_file(parts[0].node, len(parts[0].cores))
    return OWN_NAME, "".join([f"{part.node}\n" * len(part.cores) for part in parts])


@lru_cache(maxsize=4096)
def _shared_file(node: str, cores: int) -> tuple[str, str]:
    text = f"{node}\n" * cores
    return f"{SHARED}{OWN_NAME}-{blake2b(text.encode(), digest_size=8).hexdigest()}", text
