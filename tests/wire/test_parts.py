"""Large bodies travel as several small frames, and arrive as they were."""

from __future__ import annotations

import pytest

from qcg.pilotjob.wire.parts import MARK, PART, request_frames, split, split_request


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 7])
def test_a_body_is_split_into_small_frames_that_join_to_the_same_body(size: int):
    body = bytes(number % 251 for number in range(size))
    frames = split(body)
    assert b"".join(frames) == body
    assert max(map(len, frames)) <= PART
    assert len(frames) == max(-(-size // PART), 1)


@pytest.mark.parametrize("size", [0, PART, PART + 1, 5 * PART])
@pytest.mark.parametrize("way_back", [[b"peer"], [b"peer", b""], [b"peer", b"12", b""]])
def test_the_receiver_splits_routing_frames_and_request(size: int, way_back: list[bytes]):
    body = b"x" * size
    found, parts = split_request([*way_back, *request_frames(body)])
    assert found == way_back
    assert b"".join(parts) == body


def test_a_request_that_fits_in_one_frame_has_no_mark():
    assert request_frames(b"x" * PART) == [b"x" * PART]
    assert request_frames(b"x" * (PART + 1)) == [MARK, b"x" * PART, b"x"]


def test_a_mark_as_the_last_frame_is_a_request_like_any_other():
    assert split_request([b"peer", b"", MARK]) == ([b"peer", b""], [MARK])
