"""Sets of iterations: a byte for each position, 1 where it is in the set. All operations take all positions at once."""

from __future__ import annotations

from functools import lru_cache

from qcg.pilotjob.core.job_states import State

Bitmap = bytes


def in_states(states: bytes | bytearray, *wanted: State) -> Bitmap:
    """Those that are in one of these states."""
    return bytes(states.translate(_marking(wanted)))


def both(one: Bitmap, other: Bitmap) -> Bitmap:
    return (_number(one) & _number(other)).to_bytes(len(one), "little")


def added(counts: bytes | bytearray, marks: Bitmap) -> bytearray:
    """One more for each that is marked; none of the counts may be 255."""
    return bytearray((_number(counts) + _number(marks)).to_bytes(len(counts), "little"))


def entered(states: bytes | bytearray, marks: Bitmap, state: State) -> bytearray:
    """Those that are marked, all of them QUEUED, are in `state`."""
    return bytearray((_number(states) + _number(marks) * state).to_bytes(len(states), "little"))


def seen_from(values: bytes | bytearray, indices: range, others: range) -> bytes:
    """What belongs to `indices`, a byte each, for those of them that are in `others`; that is all of these."""
    first, last = indices.index(others[0]), indices.index(others[-1])
    low, high = sorted([first, last])
    stride = (high - low) // (len(others) - 1) if high > low else 1
    found = bytes(values[low : high + 1 : stride])
    return found if first <= last else found[::-1]


def _number(marks: bytes | bytearray) -> int:
    return int.from_bytes(marks, "little")


@lru_cache(maxsize=16)
def _marking(wanted: tuple[State, ...]) -> bytes:
    return bytes([value in wanted for value in range(256)])
