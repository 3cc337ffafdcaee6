"""Sets of iterations: a byte for each position, 1 if it is in the set. Each operation covers all positions at once."""

from __future__ import annotations

from functools import lru_cache

from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.iteration import Indices

Bitmap = bytes


def in_states(states: bytes | bytearray, *wanted: State) -> Bitmap:
    """The positions that are in one of these states."""
    return bytes(states.translate(_marking(wanted)))


def both(one: Bitmap, other: Bitmap) -> Bitmap:
    """The positions in both sets."""
    return (_number(one) & _number(other)).to_bytes(len(one), "little")


def added(counts: bytes | bytearray, bitmap: Bitmap) -> bytearray:
    """The counts, incremented at each position in the set; no count may be 255."""
    return bytearray((_number(counts) + _number(bitmap)).to_bytes(len(counts), "little"))


def entered(states: bytes | bytearray, bitmap: Bitmap, state: State) -> bytearray:
    """The states after each position in the set, all of them QUEUED, has entered `state`."""
    return bytearray((_number(states) + _number(bitmap) * state).to_bytes(len(states), "little"))


def seen_from(values: bytes | bytearray, indices: Indices, others: Indices) -> bytes:
    """Select the bytes of `others` from `values`, which has one byte for each of `indices`.

    `others` is a subset of `indices`.
    """
    if not (isinstance(indices, range) and isinstance(others, range)):
        return bytes([values[indices.index(other)] for other in others])
    first, last = indices.index(others[0]), indices.index(others[-1])
    low, high = sorted([first, last])
    stride = (high - low) // (len(others) - 1) if high > low else 1
    found = bytes(values[low : high + 1 : stride])
    return found if first <= last else found[::-1]


def _number(bitmap: bytes | bytearray) -> int:
    return int.from_bytes(bitmap, "little")


@lru_cache(maxsize=16)
def _marking(wanted: tuple[State, ...]) -> bytes:
    return bytes([value in wanted for value in range(256)])
