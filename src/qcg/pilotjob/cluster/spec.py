"""What is asked of the batch system for each allocation of a run."""

from __future__ import annotations

import shlex

from msgspec import Struct


class AllocationSpec(Struct, frozen=True, omit_defaults=True):
    """The options of `qcg-pm alloc` that describe an allocation."""

    nodes: str = "1"
    cores: int | None = None
    limit: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpus_per_node: str | None = None
    gres: str | None = None
    mem: str | None = None
    exclusive: bool = False
    job_name: str | None = None
    output: str | None = None
    most: int = 1
    """Number of allocations, one after another."""
    further: list[str] = []
    """Further options of the command that submits."""

    def __str__(self) -> str:
        """The options as they are written on a command line."""
        words = [f"--nodes={self.nodes}"]
        for name in ("cores", "limit", "partition", "account", "qos", "gpus_per_node", "gres", "mem"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{'time' if name == 'limit' else name.replace('_', '-')}={value}")
        words += ["--exclusive"] if self.exclusive else []
        words += [f"--output={self.output}"] if self.output is not None else []
        words += [f"--max-allocations={self.most}"]
        return shlex.join([*words, *(["--", *self.further] if self.further else [])])
