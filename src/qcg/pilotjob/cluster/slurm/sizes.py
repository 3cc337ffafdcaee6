"""The largest allocation that options of `sbatch` can give, for checks before the submission."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.options import has_option
from qcg.pilotjob.core.resources import NodeSpec

UNKNOWN = 4096
"""Cores or GPUs of a node where their number is not known: more than any job asks for."""

_NODES = re.compile(r"(?:\d{1,9}-)?(\d{1,9})", re.ASCII)
_LAST_NUMBER = re.compile(r"(?:.*[:=])?(\d{1,9})", re.ASCII)
_GPUS = re.compile(r"(?:gres/)?gpu(?:[:=].*)?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,18})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


def largest_allocation(options: Sequence[str], largest_node: tuple[int, int] | None) -> list[NodeSpec]:
    """`largest_node`: CPUs and MiB of the largest node of the partition, where they are known."""
    given = dict(option.partition("=")[::2] for option in options)
    cpus, memory = largest_node or (UNKNOWN, 0)
    if "--ntasks-per-node" in given and not has_option(options, "--cpus-per-task", "-c"):
        cpus = int(given["--ntasks-per-node"])
    if given.get("--mem", "0") != "0":
        memory = _mib(given["--mem"])
    gpus = tuple(map(str, range(_gpus(given, options))))
    return [NodeSpec(f"node{number + 1}", tuple(range(cpus)), gpus, memory) for number in range(_nodes(given))]


def _nodes(given: dict[str, str]) -> int:
    match = _NODES.fullmatch(given["--nodes"])
    if match is None or int(match[1]) == 0:
        raise BatchError(f"--nodes {given['--nodes']!r} is no number of nodes; write 4, 2-4, or 2x4")
    return int(match[1])


def _mib(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BatchError(f"--mem {text!r} is no amount of memory; write 4000M, or 4G")
    return int(int(match[1]) * _MIB[match[2].upper()])


def _gpus(given: dict[str, str], options: Sequence[str]) -> int:
    if has_option(options, "--gpus", "-G", "--gpus-per-task", "--gpus-per-socket"):
        return UNKNOWN
    counts = [given["--gpus-per-node"]] if "--gpus-per-node" in given else []
    counts += [entry for entry in given.get("--gres", "").split(",") if _GPUS.fullmatch(entry)]
    matches = [_LAST_NUMBER.fullmatch(count) for count in counts]
    return sum(int(match[1]) if match else 1 for match in matches)
