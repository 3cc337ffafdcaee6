"""Parses host files: a line for each node, with its name and its number of cores."""

from __future__ import annotations

import re

from qcg.pilotjob.cluster.errors import ClusterError

MOST_CORES = 10_000
"""Most cores of one node."""

_FORMS = "write NAME CORES, NAME:CORES or NAME slots=CORES"
_LINE = re.compile(r"(?P<name>[\w.@-]+)(?:\s*:\s*|\s+(?:slots\s*=\s*)?)(?P<cores>[0-9]{1,9})", re.ASCII)


def parse_hosts(text: str, path: str) -> list[tuple[str, int]]:
    """Names and core counts of the hosts, in the order of the file. `path` is for error messages."""
    hosts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        where = f"{path}, line {number}"
        match = _LINE.fullmatch(entry)
        if match is None or match["name"].startswith("-"):
            raise ClusterError(f"{where}: {entry[:100]!r} is not a host with its number of cores; {_FORMS}")
        name, cores = match["name"], int(match["cores"])
        if not 1 <= cores <= MOST_CORES:
            raise ClusterError(f"{where}: host {name!r} cannot have {cores} cores; give it 1 to {MOST_CORES:,}")
        if name in hosts:
            raise ClusterError(f"{where}: host {name!r} is listed twice; give each host one line")
        hosts[name] = cores
    if not hosts:
        raise ClusterError(f"{path} lists no hosts; {_FORMS}, a line for each host")
    return list(hosts.items())
