"""What each process of a parallel program does first, in a short script: take its CPU, and the GPUs of its node.

Slurm's own options for binding say the same for all nodes, depend on how a cluster is set up, and go unnoticed where
they do not work. And a step of Slurm sees all GPUs that the allocation has on a node, whatever its environment said.
"""

from __future__ import annotations

import shlex

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.launch.binding import all_bound_cpus
from qcg.pilotjob.launch.environment import gpu_variables
from qcg.pilotjob.launch.site import Site

NAME = "qcg-pm-rank"


def bound_ranks(program: list[str], grant: Grant, site: Site, *, bind: bool) -> list[str]:
    """The program, for the processes of one step: with the CPU that is theirs alone, if they are to be bound."""
    cpus = all_bound_cpus(grant, site) if bind else None
    settings = _gpu_settings(grant, site)
    if cpus is None:
        return _with_settings(program, grant, settings, 'exec "$@"')
    settings = [_list_of(bound) + more for bound, more in zip(cpus, settings, strict=True)]
    return _with_settings(program, grant, settings, _take_cpu("SLURM_LOCALID"))


def bound_rank(program: list[str], cpus: tuple[int, ...], place: str) -> list[str]:
    """The program, for the processes on one node: a variable tells each its place among them."""
    return ["bash", "-c", f"{_list_of(cpus)}; {_take_cpu(place)}", NAME, *program]


def _list_of(cpus: tuple[int, ...]) -> str:
    return f"cpus=({' '.join(map(str, cpus))})"


def _take_cpu(place: str) -> str:
    return f'exec taskset -c "${{cpus[{place}]}}" "$@"'


def with_gpus_of_node(program: list[str], grant: Grant, site: Site) -> list[str]:
    """The program, for processes that a step of Slurm has started somehow."""
    return _with_settings(program, grant, _gpu_settings(grant, site), 'exec "$@"')


def _gpu_settings(grant: Grant, site: Site) -> list[str]:
    """For each node, the words that set the variables; empty where GPUs are of no concern."""
    texts = []
    for part in grant.parts:
        pairs = [f"{name}={shlex.quote(value)}" for name, value in gpu_variables(part, site).items()]
        texts.append(" ".join(["; export", *pairs]) if pairs else "")
    return texts


def _with_settings(program: list[str], grant: Grant, settings: list[str], last: str) -> list[str]:
    nodes_by_setting: dict[str, list[str]] = {}
    for part, setting in zip(grant.parts, settings, strict=True):
        nodes_by_setting.setdefault(setting.removeprefix("; "), []).append(shlex.quote(part.node))
    if list(nodes_by_setting) == [""]:
        return program
    if len(nodes_by_setting) == 1:
        (first,) = nodes_by_setting
    else:
        cases = [f"{'|'.join(nodes)}) {setting};;" for setting, nodes in nodes_by_setting.items()]
        first = f"case $SLURMD_NODENAME in {' '.join(cases)} esac"
    return ["bash", "-c", f"{first}; {last}", NAME, *program]
