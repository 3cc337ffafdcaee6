"""Parsers for the output of `scontrol show job -d`, `scontrol show node` and `scontrol show config`.

Each field is searched for at the beginning of its line: names of jobs, commands and comments may hold any text.
"""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

from qcg.pilotjob.cluster.errors import ClusterError

_JOB = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_STATE = re.compile(r"^ +JobState=(\S+)", re.MULTILINE)
_HET_IDS = re.compile(r"^ +HetJobIdSet=(\S+)", re.MULTILINE)
_END = re.compile(r"^ +StartTime=\S+ EndTime=(\S+)", re.MULTILINE)
_NODES = re.compile(r"^ +NodeList=(\S*)", re.MULTILINE)
_THREADS = re.compile(r"^ +NumNodes=.* ReqB:S:C:T=[^:\s]+:[^:\s]+:[^:\s]+:(\d+)", re.MULTILINE)
_SHARE = re.compile(r"^ +Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(.*)$", re.MULTILINE)

_NODE = re.compile(r"^NodeName=(\S+) ", re.MULTILINE)
_ADDRESS = re.compile(r"^ +NodeAddr=(\S+)", re.MULTILINE)
_THREADS_OF_NODE = re.compile(r"^ +(?:RealMemory|State)=.* ThreadsPerCore=(\d+)", re.MULTILINE)

_CORES_OF_SOCKET = re.compile(r"^NodeName=.* CoresPerSocket=(\d+)", re.MULTILINE)
_CPUS = re.compile(r"^ +CPUAlloc=.* CPUTot=(\d+)", re.MULTILINE)
_SOCKETS = re.compile(r"^ +RealMemory=.* Sockets=(\d+)", re.MULTILINE)
_MEMORY = re.compile(r"^ +RealMemory=(\d+)", re.MULTILINE)

_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)

_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_GPU = re.compile(r"gpu(?::[^:(]+)??(?::(\d+))?(?:\((IDX|CNT):([^)]*)\))?")
_IDS = re.compile(r"(\d+)(?:-(\d+))?")


class NodeShare(Struct, frozen=True):
    """The resources of a job on each of several nodes that are alike."""

    nodes: str
    """A node list such as `n[1-3]`."""
    cpus: tuple[int, ...]
    gpus: tuple[str, ...]
    memory: int
    """MiB; 0 where Slurm does not manage memory."""


class JobRecord(Struct, frozen=True):
    """A job in the output of `scontrol show job -d`."""

    id: str
    state: str
    nodes: str
    """A node list; empty before the start."""
    shares: list[NodeShare]
    end: float | None
    """Epoch seconds; None without a limit."""
    threads: int | None
    """Threads per core that tasks may use, where the user asked for that: `--hint=nomultithread` gives 1."""
    het_ids: str
    """The ids of all components, when the job is a component of a heterogeneous job."""


class NodeRecord(Struct, frozen=True):
    """A node in the output of `scontrol show node`."""

    name: str
    address: str
    """An address or a name at which the node is reached."""
    threads: int
    """Threads per core."""
    cores: int = 0
    cpus: int = 0
    """CPUs that Slurm gives to jobs: the cores, or all threads of them."""
    memory: int = 0
    """MiB."""


def parse_jobs(text: str) -> list[JobRecord]:
    """All jobs in the output of `scontrol show job -d`, with times in seconds (SLURM_TIME_FORMAT=%s)."""
    return [_job(record) for record in _records(_JOB, text)]


def parse_shown_nodes(text: str) -> list[NodeRecord]:
    """All nodes in the output of `scontrol show node`."""
    return [_node(record) for record in _records(_NODE, text)]


def parse_cluster_name(text: str) -> str:
    """The name of the cluster in the output of `scontrol show config`; empty when it is missing."""
    return _found(_CLUSTER, text)


def parse_ids(text: str) -> tuple[int, ...]:
    """`0-2,5` is 0, 1, 2, 5."""
    ids: list[int] = []
    for entry in text.split(","):
        match = _IDS.fullmatch(entry)
        if match is None:
            raise ClusterError(f"{text[:100]!r} is not a list of ids such as 0-2,5")
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(ids)


def parse_gpus(text: str) -> tuple[str, ...]:
    """The GPU ids in a value of `GRES=`: `gpu:tesla:2(IDX:0-1),gpu:1(IDX:3)` is 0, 1, 3."""
    ids: list[int] = []
    for entry in _COMMA_OUTSIDE_PARENTHESES.split(text.strip()):
        match = _GPU.fullmatch(entry)
        if match is None:
            continue  # something else than GPUs
        count, kind, given = match.groups()
        if kind == "IDX":
            ids += parse_ids(given) if given not in ("", "N/A") else ()
        else:
            ids += range(len(ids), len(ids) + int(count or 0))  # GPUs without device files have no ids of their own
    return tuple(map(str, sorted(ids)))


def _records(start: re.Pattern[str], text: str) -> list[str]:
    starts = [match.start() for match in start.finditer(text)]
    return [text[begin:end] for begin, end in pairwise([*starts, len(text)])]


def _job(text: str) -> JobRecord:
    end = _found(_END, text)
    nodes = _found(_NODES, text)
    threads = _found(_THREADS, text)
    return JobRecord(
        id=_found(_JOB, text),
        state=_found(_STATE, text),
        nodes="" if nodes == "(null)" else nodes,
        shares=[
            NodeShare(names, parse_ids(cpus), parse_gpus(gres), int(memory))
            for names, cpus, memory, gres in _SHARE.findall(text)
            if cpus
        ],
        end=float(end) if end.isdecimal() else None,
        threads=int(threads) if threads else None,
        het_ids=_found(_HET_IDS, text),
    )


def _node(text: str) -> NodeRecord:
    name = _found(_NODE, text)
    cores_of_socket, sockets = _number(_CORES_OF_SOCKET, text), _number(_SOCKETS, text)
    return NodeRecord(
        name=name,
        address=_found(_ADDRESS, text) or name,
        threads=_number(_THREADS_OF_NODE, text) or 1,
        cores=cores_of_socket * sockets,
        cpus=_number(_CPUS, text),
        memory=_number(_MEMORY, text),
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    return int(_found(pattern, text) or 0)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
