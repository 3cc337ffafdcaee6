"""The nodes of a run on this machine: its real cores, or virtual nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.cluster.local.virtual_nodes import parse_nodes
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.host.hostname import host_name


class Nodes(Struct, frozen=True):
    """Nodes on this machine."""

    specs: list[NodeSpec]
    real: bool
    """Core ids are CPUs of this machine, so that jobs can be bound to them."""


def local_nodes(wanted: str | None, environ: Mapping[str, str]) -> Nodes:
    """This host with all its usable cores, or the virtual nodes that `--nodes` describes."""
    memory = _memory()
    if wanted is None:
        cores = tuple(sorted(os.sched_getaffinity(0)))
        return Nodes([NodeSpec(host_name(), cores, _gpus(environ), memory)], real=True)
    described = parse_nodes(wanted)
    share = memory // len(described)
    specs = [NodeSpec(name, tuple(range(cores)), (), share, counters=counters) for name, cores, counters in described]
    return Nodes(specs, real=False)


def _gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(gpu.strip() for gpu in given.split(",") if gpu.strip() not in ("", "-1", "NoDevFiles"))
    devices = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*"))
    return tuple(str(number) for number in sorted(int(match[1]) for match in devices if match))


def _memory() -> int:
    """Memory of this machine in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
