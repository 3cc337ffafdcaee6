"""The largest allocation that options of `sbatch` can give, for checks before the submission."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qcg.pilotjob.cluster.slurm.options import has_option
from qcg.pilotjob.cluster.spec import parse_memory, parse_nodes
from qcg.pilotjob.core.resources import NodeSpec

UNKNOWN = 4096
"""Cores or GPUs of a node where their number is not known: more than any job asks for."""

_LAST_NUMBER = re.compile(r"(?:.*[:=])?(\d{1,9})", re.ASCII)
_GPUS = re.compile(r"(?:gres/)?gpu(?:[:=].*)?", re.ASCII)


def largest_allocation(options: Sequence[str], largest_node: tuple[int, int] | None) -> list[NodeSpec]:
    """`largest_node`: CPUs and MiB of the largest node of the partition, where they are known."""
    given = dict(option.partition("=")[::2] for option in options)
    cpus, memory = largest_node or (UNKNOWN, 0)
    if "--ntasks-per-node" in given and not has_option(options, "--cpus-per-task", "-c"):
        cpus = int(given["--ntasks-per-node"])
    if given.get("--mem", "0") != "0":
        memory = parse_memory(given["--mem"])
    gpus = tuple(map(str, range(_gpus(given, options))))
    _, nodes = parse_nodes(given["--nodes"])
    return [NodeSpec(f"node{number + 1}", tuple(range(cpus)), gpus, memory) for number in range(nodes)]


def _gpus(given: dict[str, str], options: Sequence[str]) -> int:
    if has_option(options, "--gpus", "-G", "--gpus-per-task", "--gpus-per-socket"):
        return UNKNOWN
    counts = [given["--gpus-per-node"]] if "--gpus-per-node" in given else []
    counts += [entry for entry in given.get("--gres", "").split(",") if _GPUS.fullmatch(entry)]
    matches = [_LAST_NUMBER.fullmatch(count) for count in counts]
    return sum(int(match[1]) if match else 1 for match in matches)
