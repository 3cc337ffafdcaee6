"""Sets of iterations as bytes."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from qcg.pilotjob.core import bitmaps
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.description.iteration import IndexList


@given(st.lists(st.tuples(st.sampled_from(State), st.booleans()), min_size=1, max_size=20))
def test_positions_in_the_set_enter_the_state_and_others_stay(wanted: list[tuple[State, bool]]) -> None:
    states = bytearray(state for state, _ in wanted)
    chosen = bytes(mark for _, mark in wanted)
    queued = bitmaps.both(bitmaps.in_states(states, State.QUEUED), chosen)
    assert list(bitmaps.entered(states, queued, State.OMITTED)) == [
        State.OMITTED if mark and state is State.QUEUED else state for state, mark in wanted
    ]


def test_counts_are_incremented_at_positions_in_the_set() -> None:
    assert bitmaps.added(bytearray([0, 254, 254, 3]), bytes([0, 1, 0, 1])) == bytearray([0, 255, 254, 4])


@given(st.integers(-5, 5), st.integers(1, 30), st.integers(-3, 3), st.data())
def test_bytes_of_a_subrange_of_indices_are_selected(start: int, length: int, step: int, data: st.DataObject) -> None:
    assume(step)
    indices = range(start, start + length * step, step)
    positions = range(length)[:: data.draw(st.integers(-4, 4).filter(bool))][data.draw(st.integers(0, length - 1)) :]
    assume(positions)
    others = range(indices[positions[0]], indices[positions[-1]] + positions.step * step, positions.step * step)
    assert list(others) == [indices[position] for position in positions]
    assert list(bitmaps.seen_from(bytes(range(length)), indices, others)) == list(positions)


def test_bytes_are_selected_by_listed_indices() -> None:
    listed = IndexList((31, 7, 133))
    assert bitmaps.seen_from(b"abc", listed, IndexList((133, 31))) == b"ca"
    assert bitmaps.seen_from(b"abc", listed, range(7, 8)) == b"b"
    assert bitmaps.seen_from(b"abcd", range(4), IndexList((3, 0))) == b"da"
