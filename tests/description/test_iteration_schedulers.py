from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.description.errors import DescriptionError
from qcg.pilotjob.description.iteration_schedulers import MaximumIters, split_into
from qcg.pilotjob.description.model import Amount


def reference(count: int, total: int, least: int) -> list[int]:
    """The rule as the contract words it, step by step."""
    rounds = 1 if count * least <= total else -(-count // (total // least))
    sizes = []
    left = count
    for done in range(rounds):
        sharers = -(-left // (rounds - done))
        left -= sharers
        rest = total
        for place in range(sharers):
            size = rest // (sharers - place)
            rest -= size
            sizes.append(size)
    return sizes


@pytest.mark.parametrize(
    ("count", "total", "least", "sizes"),
    [
        (3, 10, 1, [3, 3, 4]),
        (3, 11, 5, [5, 6, 11]),
        (4, 11, 6, [11, 11, 11, 11]),
        (3, 4, 1, [1, 1, 2]),
        (10, 4, 1, [1, 1, 1, 1, 1, 1, 2, 1, 1, 2]),
        (5, 4, 2, [2, 2, 2, 2, 4]),
        (1, 8, 1, [8]),
        (5, 10, 1, [2] * 5),
        (20, 10, 1, [1] * 20),
        (3, 11, 3, [3, 4, 4]),
        (4, 11, 5, [5, 6, 5, 6]),
    ],
)
def test_maximum_iters_gives_the_documented_numbers(count: int, total: int, least: int, sizes: list[int]) -> None:
    sharing = MaximumIters(count, total, least)
    assert [sharing.size(position) for position in range(count)] == sizes
    assert sharing.sizes() == tuple(sorted(set(sizes)))


@given(st.integers(1, 400), st.integers(1, 200), st.integers(1, 200))
def test_maximum_iters_matches_a_step_by_step_computation(count: int, total: int, least: int) -> None:
    least = min(least, total)
    sharing = MaximumIters(count, total, least)
    sizes = [sharing.size(position) for position in range(count)]
    assert sizes == reference(count, total, least)
    assert sharing.sizes() == tuple(sorted(set(sizes)))
    assert min(sizes) >= least


@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 20), st.integers(0, 60))
def test_next_of_matches_a_linear_search(count: int, total: int, least: int, begin: int) -> None:
    sharing = MaximumIters(count, total, min(least, total))
    sizes = [sharing.size(position) for position in range(count)]
    for size in {*sizes, max(sizes) + 1}:
        found = [position for position in range(begin, count) if sizes[position] == size]
        assert sharing.next_of(size, begin) == (found[0] if found else None)


def test_a_hundred_million_iterations_need_no_table() -> None:
    sharing = MaximumIters(100_000_000, 1000, 3)
    assert sharing.size(0) in sharing.sizes()
    assert sharing.size(99_999_999) in sharing.sizes()


@pytest.mark.parametrize("position", [-1, 3])
def test_size_rejects_positions_out_of_range(position: int) -> None:
    with pytest.raises(IndexError):
        MaximumIters(3, 10).size(position)


def test_maximum_iters_rejects_a_minimum_above_the_total() -> None:
    with pytest.raises(DescriptionError, match=r"minimum of 12 .* only 11 exist"):
        MaximumIters(3, 11, 12)


def test_maximum_iters_rejects_zero_iterations() -> None:
    with pytest.raises(DescriptionError, match="at least one iteration"):
        MaximumIters(0, 11)


@pytest.mark.parametrize(
    ("total", "parts", "least", "amount"),
    [(10, 3, 1, Amount(1, 3)), (10, 3, 3, Amount(3, 3)), (4, 2, 1, Amount(1, 2)), (4, 4, 1, Amount(1, 1))],
)
def test_split_into_gives_a_range_up_to_one_part(total: int, parts: int, least: int, amount: Amount) -> None:
    assert split_into(total, parts, least) == amount


@pytest.mark.parametrize(
    ("total", "parts", "least", "sentence"),
    [(4, 5, 1, "leaves nothing for each: only 4 exist"), (4, 2, 3, "gives 2 each, less than the minimum of 3")],
)
def test_split_into_rejects_impossible_parts(total: int, parts: int, least: int, sentence: str) -> None:
    with pytest.raises(DescriptionError, match=sentence):
        split_into(total, parts, least)
