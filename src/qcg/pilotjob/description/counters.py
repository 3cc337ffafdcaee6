"""Named counters and parts of GPUs, as users write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from qcg.pilotjob.description.errors import quoted, single_problem
from qcg.pilotjob.description.model import WHOLE_GPU, Counters

LARGEST = 2**31 - 1
"""Largest number of a counter."""
PER_NODE = "/node"
"""Suffix of a counter that each node of the run has."""

_NAME = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)
RESERVED = ("core", "cores", "gpu", "gpus", "mem", "memory", "node", "nodes", "slots")
_NUMBER = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def check_counter(name: str, number: int) -> None:
    """Raise a DescriptionError if no counter can have this name or number."""
    if _NAME.fullmatch(name) is None:
        raise single_problem(
            f"{quoted(name)} is no name for a resource; use letters, digits, '_', '-' and '.', and begin with a letter"
        )
    if name.lower() in RESERVED:
        raise single_problem(f"{quoted(name)} is no name for a resource of your own; choose another name")
    if not 1 <= number <= LARGEST:
        raise single_problem(f"{quoted(name)} cannot count {number}; give it 1 to {LARGEST:,}")


def parse_counter(text: str) -> tuple[str, int]:
    """The name and number of `license=4`."""
    name, equals, number = text.partition("=")
    if not equals or _NUMBER.fullmatch(number.strip()) is None:
        raise single_problem(f"{quoted(text)} is not a name with a whole number; write license=4")
    check_counter(name.strip(), int(number))
    return name.strip(), int(number)


def sorted_counters(found: Iterable[tuple[str, int]]) -> Counters:
    """Counters in the order of their names; raises a DescriptionError for a name that is given twice."""
    counters: dict[str, int] = {}
    for name, number in found:
        if name in counters:
            raise single_problem(f"{quoted(name)} is given twice")
        counters[name] = number
    return tuple(sorted(counters.items()))


def parse_options(given: Iterable[str]) -> tuple[Counters, Counters]:
    """The values of `--resource`: counters of the run, and those that each of its nodes has (`fpga=2/node`)."""
    of_run: list[tuple[str, int]] = []
    on_nodes: list[tuple[str, int]] = []
    for text in given:
        bare, slash, unit = text.strip().partition("/")
        if slash and slash + unit != PER_NODE:
            raise single_problem(
                f"{quoted(text)} ends with {quoted(slash + unit)}; write {bare} for the whole run, or {bare}{PER_NODE}"
                " for as many on each node"
            )
        counter = parse_counter(bare)
        (on_nodes if text.strip().endswith(PER_NODE) else of_run).append(counter)
    sorted_counters([*of_run, *on_nodes])
    return sorted_counters(of_run), sorted_counters(on_nodes)


def gpus_of(given: float) -> tuple[int, int]:
    """A number of GPUs as whole ones and thousandths of one; one of them is 0. Raises a DescriptionError."""
    # The shortest text of a float is what the user wrote; its binary value is not.
    exact = Decimal(repr(given))
    if exact == exact.to_integral_value():
        return int(exact), 0
    if exact > 1:
        raise single_problem(
            f"{given:g} GPUs cannot be given; ask for a whole number of GPUs, or for a part of one such as 0.5"
        )
    share = exact * WHOLE_GPU
    if share != share.to_integral_value():
        raise single_problem(f"{given:g} of a GPU cannot be given; use at most three decimals")
    return 0, int(share)
