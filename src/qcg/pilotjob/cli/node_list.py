"""The node list of the command line, which may be written with spaces."""

from __future__ import annotations


def join_node_list(arguments: list[str]) -> list[str]:
    """`--nodes n1:4, n2:4` without quotes: what follows or begins with a comma belongs to the list."""
    joined: list[str] = []
    for argument in arguments:
        if _ends_in_nodes(joined) and (joined[-1].endswith(",") or argument.startswith(",")):
            joined[-1] += argument
        else:
            joined.append(argument)
    return joined


def _ends_in_nodes(arguments: list[str]) -> bool:
    return bool(arguments) and (arguments[-1].startswith("--nodes=") or arguments[-2:-1] == ["--nodes"])
