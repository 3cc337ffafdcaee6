"""Frames of the far side between other output."""

from __future__ import annotations

import asyncio

import pytest

from qcg.pilotjob.executors.ssh.frames import Frame, FrameError, FrameReader, new_marker, request_frame
from qcg.pilotjob.host.remote.frames import FrameReader as FarReader
from qcg.pilotjob.host.remote.frames import reply_frame

MARKER = new_marker()


def read(*parts: bytes, frames: int = 1) -> list[Frame | None]:
    async def scenario() -> list[Frame | None]:
        stream = asyncio.StreamReader()
        reader = FrameReader(stream, MARKER)

        async def feed() -> None:
            for part in parts:
                stream.feed_data(part)
                await asyncio.sleep(0)
            stream.feed_eof()

        feeding = asyncio.ensure_future(feed())
        found = [await reader.frame() for _ in range(frames)]
        await feeding
        return found

    return asyncio.run(scenario())


def frame(number: int, payload: bytes = b"") -> bytes:
    return reply_frame(MARKER, {"n": number, "text": "ü\n"}, payload)


def test_the_far_side_reads_our_frames():
    (found,) = FarReader().feed(request_frame({"do": "x", "text": "ü"}, b"\0\n"))
    assert (found.head, found.payload) == ({"do": "x", "text": "ü"}, b"\0\n")


def test_a_text_of_the_request_is_replaced_in_its_json():
    (found,) = FarReader().feed(request_frame({"path": "@TOKEN@/x"}, replaced=(b"@TOKEN@", b'/a \\"b')))
    assert found.head == {"path": '/a "b/x'}


def test_frames_are_found_among_noise_however_the_bytes_are_cut():
    data = b"Welcome\n$ " + frame(1, b"\x00" * 10) + b"tail of a script\nno end" + frame(2) + b"bye\n"
    for size in (1, 7, 64, len(data)):
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        first, second, third = read(*parts, frames=3)
        assert first is not None
        assert second is not None
        assert (first.head["n"], first.payload, second.head["n"], third) == (1, b"\x00" * 10, 2, None)


def test_an_echoed_marker_is_no_frame():
    noise = MARKER.encode() + b" " + b"x" * 200 + b"\n"
    (found,) = read(noise + frame(1))
    assert found is not None
    assert found.head["n"] == 1


def test_a_frame_that_is_cut_off_is_none():
    assert read(frame(1)[:-1]) == [None]


@pytest.mark.parametrize("header", [b" x 0\n", b" 5\n", b" 0 0\n", b" 99999999999 0\n", b" 2 0\n[]"])
def test_invalid_bytes_after_the_marker_are_an_error(header):
    with pytest.raises(FrameError):
        read(MARKER.encode() + header)


def test_endless_noise_is_an_error():
    with pytest.raises(FrameError, match="more than 16 MiB"):
        read(*[b"x" * (1 << 20)] * 20)


def test_bytes_of_an_incomplete_frame_are_counted():
    async def scenario() -> int:
        stream = asyncio.StreamReader()
        reader = FrameReader(stream, MARKER)
        stream.feed_data(frame(1, b"x" * 100)[:-50])
        stream.feed_eof()
        assert await reader.frame() is None
        return reader.received

    assert asyncio.run(scenario()) == len(frame(1, b"x" * 100)) - 50
