"""Clauses of `why` about a request: what it asks for, and what is free of that."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from qcg.pilotjob.core.feasibility import (
    able_nodes,
    capacity,
    describe_counters,
    describe_extras,
    describe_minimum,
    groups_for,
)
from qcg.pilotjob.core.resources import Node, NodeSpec
from qcg.pilotjob.description.model import Amount, ResourceRequest


def request_in_words(request: ResourceRequest) -> str:
    """A request in words: `at least 2 nodes with 3 cores each and 1 GPU`."""
    whole = "whole " if request.cores is None else ""
    words = describe_minimum(request).replace("node", f"{whole}node", 1) if whole else describe_minimum(request)
    besides = " and ".join(filter(None, [describe_extras(request), describe_counters(request)]))
    open_ended = any(_is_range(amount) for amount in (request.nodes, request.cores) if amount is not None)
    return ("at least " if open_ended else "") + words + (f" and {besides}" if besides else "")


def shortage_in_words(request: ResourceRequest, free: list[NodeSpec], nodes: list[NodeSpec]) -> str:
    """How much of the requested resources is free in one group with these nodes."""
    if any(node.slots for node in nodes):
        return "all job slots are taken"
    extras = describe_extras(request)
    if extras and not able_nodes(request, free):
        return f"no node has {extras} free"
    number = capacity(request, free)
    if request.nodes is None and request.one_node:
        return f"no such node has more than {number} of its cores free"
    return f"{number} of {capacity(request, nodes)} {'is' if number == 1 else 'are'} free"


def eligible_nodes(request: ResourceRequest, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The nodes that count for the request."""
    return [node for members in groups_for(request, nodes).values() for node in members]


def _is_range(amount: Amount) -> bool:
    return amount.most != amount.least


def free_part(node: Node) -> NodeSpec:
    """The free part of a node, as a node of its own."""
    cores = tuple([core for core, bit in node.bits.items() if node.free & bit])
    spec = node.spec
    free = NodeSpec(spec.name, cores, tuple(node.gpus), max(node.memory, 0), group=spec.group, slots=spec.slots)
    if not (node.counters or node.gpus_taken):
        return free
    return replace(free, counters=tuple(node.counters.items()), gpu_share=node.largest_gpu_share)


def totals(nodes: list[NodeSpec], whole: int | None = None) -> dict[str, int]:
    totals = {"nodes": len(nodes) if whole is None else whole, "cores": sum(len(node.cores) for node in nodes)}
    gpus = sum(len(node.gpus) for node in nodes)
    return {**totals, "gpus": gpus} if gpus else totals
