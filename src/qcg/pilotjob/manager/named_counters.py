"""Named counters of a run and of its nodes, from the options of its manager."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from qcg.pilotjob.common.options import UsageError
from qcg.pilotjob.core.resources import NodeSpec
from qcg.pilotjob.description.counters import parse_options, sorted_counters
from qcg.pilotjob.description.errors import DescriptionError


def with_named_counters(specs: Sequence[NodeSpec], named: Sequence[str]) -> list[NodeSpec]:
    """The nodes; nodes of the run itself get the counters that `--resource NAME=N/node` gives to each of them."""
    if not named:
        return list(specs)
    _, on_nodes = parse_options(named)
    try:
        return [
            spec if spec.group else replace(spec, counters=sorted_counters([*spec.counters, *on_nodes]))
            for spec in specs
        ]
    except DescriptionError as error:
        raise UsageError(f"--resource: {error}: a node has that resource already; leave out one") from None


def counters_of_run(named: Sequence[str], specs: Sequence[NodeSpec]) -> dict[str, int]:
    """The counters of the run. `specs`: all nodes, whose counters have other names."""
    of_run = dict(parse_options(named)[0]) if named else {}
    for spec in specs:
        for name, _ in spec.counters:
            if name in of_run:
                raise UsageError(
                    f"--resource {name}={of_run[name]}: {spec.name} has a resource of that name, too; a name belongs to"
                    " the run or to nodes, so rename one of them"
                )
    return of_run
