"""A short script around each process of a parallel program, which binds it to its CPU and chooses the GPUs of its node.

Options of batch systems for binding are the same for all nodes, depend on the configuration of the cluster, and are
ignored silently where they do not work. And processes that a batch system starts see all GPUs that the allocation has
on a node, whatever the environment of the job was.
"""

from __future__ import annotations

import shlex

from qcg.pilotjob.core.records import Grant
from qcg.pilotjob.launch.binding import all_bound_cpus
from qcg.pilotjob.launch.environment import gpu_variables
from qcg.pilotjob.launch.site import Site

NAME = "qcg-pm-rank"


def bound_ranks(
    program: list[str], grant: Grant, site: Site, *, node_variable: str, rank_variable: str, bind: bool
) -> list[str]:
    """The program, for processes on all nodes of a grant, each bound to one CPU if `bind` says so.

    `node_variable`: as in `MultiNode`. `rank_variable` tells a process its number on its node.
    """
    cpus = all_bound_cpus(grant, site) if bind else None
    settings = _gpu_settings(grant, site)
    if cpus is None:
        return _with_settings(program, grant, settings, node_variable, 'exec "$@"')
    settings = [_list_of(bound) + more for bound, more in zip(cpus, settings, strict=True)]
    return _with_settings(program, grant, settings, node_variable, _take_cpu(rank_variable))


def bound_rank(program: list[str], cpus: tuple[int, ...], rank_variable: str) -> list[str]:
    """The program, for the processes on one node: `rank_variable` tells each its number among them."""
    return ["bash", "-c", f"{_list_of(cpus)}; {_take_cpu(rank_variable)}", NAME, *program]


def _list_of(cpus: tuple[int, ...]) -> str:
    return f"cpus=({' '.join(map(str, cpus))})"


def _take_cpu(rank_variable: str) -> str:
    return f'exec taskset -c "${{cpus[{rank_variable}]}}" "$@"'


def with_gpus_of_node(program: list[str], grant: Grant, site: Site, node_variable: str) -> list[str]:
    """The program, for processes that see all GPUs of their node."""
    return _with_settings(program, grant, _gpu_settings(grant, site), node_variable, 'exec "$@"')


def _gpu_settings(grant: Grant, site: Site) -> list[str]:
    """For each node, the shell text that sets the variables about GPUs; empty where there are none."""
    texts = []
    for part in grant.parts:
        pairs = [f"{name}={shlex.quote(value)}" for name, value in gpu_variables(part, site).items()]
        texts.append(" ".join(["; export", *pairs]) if pairs else "")
    return texts


def _with_settings(program: list[str], grant: Grant, settings: list[str], node_variable: str, last: str) -> list[str]:
    nodes_by_setting: dict[str, list[str]] = {}
    for part, setting in zip(grant.parts, settings, strict=True):
        nodes_by_setting.setdefault(setting.removeprefix("; "), []).append(_pattern(part.node, node_variable))
    if list(nodes_by_setting) == [""]:
        return program
    if len(nodes_by_setting) == 1:
        (first,) = nodes_by_setting
    else:
        cases = [f"{'|'.join(nodes)}) {setting};;" for setting, nodes in nodes_by_setting.items()]
        # HOSTNAME is no substitute for `uname`: Bash keeps a value that it inherits, such as that of the first node.
        value = f"${node_variable}" if node_variable else "$(uname -n)"
        shown = f"{node_variable}={value}" if node_variable else f"host name {value}"
        unknown = f'*) echo "qcg-pm: {shown} names no node of this job" >&2; exit 1;;'
        first = f"case {value} in {' '.join(cases)} {unknown} esac"
    return ["bash", "-c", f"{first}; {last}", NAME, *program]


def _pattern(node: str, node_variable: str) -> str:
    """What the name of a node looks like on it."""
    name = shlex.quote(node)
    return name if node_variable else f"{name}|{name}.*"
