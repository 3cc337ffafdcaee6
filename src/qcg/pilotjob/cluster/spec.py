"""The allocations that a user asks for, independent of the batch system."""

from __future__ import annotations

import re
import shlex

from msgspec import Struct, field
from msgspec.structs import replace

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.time_limits import time_limit

_NODES = re.compile(r"(?:(?P<least>[0-9]{1,9})-)?(?P<most>[0-9]{1,9})", re.ASCII)
_GPUS = re.compile(r"(?:(?P<type>[^:]+):)?(?P<count>[0-9]{1,9})", re.ASCII)
_MEMORY = re.compile(r"([0-9]{1,18})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


class AllocationSpec(Struct, frozen=True, omit_defaults=True):
    """The options of `qcg-pm alloc` that describe an allocation.

    Fields have the text of the command line, which `submission.json` keeps, with the field names of earlier versions,
    and messages repeat. A batch system takes
    numbers from the properties, and raises `BatchError` for a field that it does not have.
    """

    nodes: str = "1"
    """`4`, or `2-4`; as numbers: `nodes_min` and `nodes_max`."""
    cores: int | None = None
    """Cores on each node; None: whole nodes, with all cores and memory."""
    limit: str | None = None
    """Time limit, in a form of `cluster/time_limits.py`; as a number: `limit_seconds`."""
    partition: str | None = None
    """Partition or queue."""
    account: str | None = None
    qos: str | None = None
    gpus_per_node: str | None = None
    """`2`, or `a100:2`; in parts: `gpu_count` and `gpu_type`."""
    gres: str | None = None
    """Generic resources on each node, in the words of the batch system; not every batch system has them."""
    mem: str | None = None
    """Memory on each node, `4000M` or `16G`, `0` for all; as a number: `memory_mib`."""
    exclusive: bool = False
    """No other jobs on the nodes."""
    job_name: str | None = None
    """Name in the queue."""
    output: str | None = None
    """Path of the output file, from the working directory of the run; None: a file in that directory, with the id of
    the allocation in its name."""
    max_allocations: int = field(default=1, name="most")
    """Number of allocations, one after another."""
    extra_options: list[str] = field(default_factory=list, name="further")
    """Further options of the command that submits, as `AllocationQueue.further_options` has returned them."""

    def for_another_system(self) -> tuple[AllocationSpec, list[str]]:
        """This spec without the words of its batch system, and the options that were left out."""
        kept = replace(
            self,
            partition=None,
            account=None,
            qos=None,
            gres=None,
            gpus_per_node=None if self.gpus_per_node is None else str(self.gpu_count),
            output=None,
            extra_options=[],
        )
        return kept, [word for word in (*self.words(), *self.extra_options) if word not in kept.words()]

    @property
    def nodes_min(self) -> int:
        return parse_nodes(self.nodes)[0]

    @property
    def nodes_max(self) -> int:
        return parse_nodes(self.nodes)[1]

    @property
    def limit_seconds(self) -> int | None:
        """None: no limit was given, or `unlimited`."""
        minutes = None if self.limit is None else time_limit(self.limit)
        return None if minutes is None else 60 * minutes

    @property
    def gpu_count(self) -> int:
        """GPUs on each node."""
        return 0 if self.gpus_per_node is None else _parse_gpus(self.gpus_per_node)[1]

    @property
    def gpu_type(self) -> str:
        """Empty: any type."""
        return "" if self.gpus_per_node is None else _parse_gpus(self.gpus_per_node)[0]

    @property
    def memory_mib(self) -> int | None:
        """None: not given; 0: all memory of each node."""
        return None if self.mem is None else parse_memory(self.mem)

    def __str__(self) -> str:
        """The options as they are written on a command line."""
        return shlex.join([*self.words(), *(["--", *self.extra_options] if self.extra_options else [])])

    def words(self) -> list[str]:
        """The options of the fields, except further options."""
        words = [f"--nodes={self.nodes}"]
        for name in ("cores", "limit", "partition", "account", "qos", "gpus_per_node", "gres", "mem"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{'time' if name == 'limit' else name.replace('_', '-')}={value}")
        words += ["--exclusive"] if self.exclusive else []
        words += [f"--output={self.output}"] if self.output is not None else []
        return [*words, f"--max-allocations={self.max_allocations}"]


def parse_nodes(text: str) -> tuple[int, int]:
    """The least and the largest number of nodes, of `4` or `2-4`."""
    match = _NODES.fullmatch(text)
    most = int(match["most"]) if match else 0
    least = int(match["least"]) if match and match["least"] else most
    if most == 0:
        raise BatchError(f"--nodes {text!r} is no number of nodes; write 4, 2-4, or 2x4")
    return least, most


def parse_memory(text: str) -> int:
    """MiB of `4000M` or `16G`."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BatchError(f"--mem {text!r} is no amount of memory; write 4000M, or 4G")
    return int(int(match[1]) * _MIB[match[2].upper()])


def _parse_gpus(text: str) -> tuple[str, int]:
    match = _GPUS.fullmatch(text)
    if match is None:
        raise BatchError(f"--gpus-per-node {text!r} is no number of GPUs; write 2, or a100:2")
    return match["type"] or "", int(match["count"])
