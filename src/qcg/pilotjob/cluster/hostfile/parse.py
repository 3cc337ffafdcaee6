"""Parses host files: a line for each node, with its name, its number of cores, and counters of its own."""

from __future__ import annotations

import re
from typing import NamedTuple

from qcg.pilotjob.cluster.errors import ClusterError
from qcg.pilotjob.description.counters import parse_counter, sorted_counters
from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.model import Counters

MOST_CORES = 10_000
"""Most cores of one node."""

_FORMS = "write NAME CORES, NAME:CORES or NAME slots=CORES, and resources of your own after that: NAME CORES fpga=2"
_LINE = re.compile(
    r"(?P<user>\w[\w.-]*@)?(?P<name>\w[\w.-]*)(?:\s*:\s*|\s+(?:slots\s*=\s*)?)(?P<cores>[0-9]{1,9})"
    r"(?P<counters>(?:[\s,]+[^\s,=]+=[^\s,=]*)*)",
    re.ASCII,
)


class Host(NamedTuple):
    """A line of a host file."""

    name: str
    cores: int
    login: str
    """The host as `ssh` gets it: its name, or USER@NAME."""
    counters: Counters = ()
    """Named counters of the node."""


def parse_hosts(text: str, path: str) -> list[Host]:
    """The hosts in the order of the file. `path` is for error messages."""
    hosts: dict[str, Host] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        where = f"{path}, line {number}"
        match = _LINE.fullmatch(entry)
        if match is None:
            raise ClusterError(f"{where}: {entry[:100]!r} is not a host with its number of cores; {_FORMS}")
        name, cores = match["name"], int(match["cores"])
        try:
            counters = sorted_counters([parse_counter(one) for one in re.split(r"[\s,]+", match["counters"]) if one])
        except DescriptionError as error:
            raise ClusterError(f"{where}: host {name!r}: {error}") from None
        host = Host(name, cores, f"{match['user'] or ''}{name}", counters)
        if not 1 <= cores <= MOST_CORES:
            raise ClusterError(f"{where}: host {name!r} cannot have {cores} cores; give it 1 to {MOST_CORES:,}")
        if name in hosts:
            earlier = hosts[name].login
            said = "twice" if earlier == host.login else f"for two users, as {earlier} and as {host.login}"
            raise ClusterError(f"{where}: host {name!r} is listed {said}; give each host one line")
        hosts[name] = host
    if not hosts:
        raise ClusterError(f"{path} lists no hosts; {_FORMS}, a line for each host")
    return list(hosts.values())
