"""Input of a terminal becomes keys, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.top.keys import KeyDecoder


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"ab", ["a", "b"]),
        ("ż数".encode(), ["ż", "数"]),
        (b"\r", ["enter"]),
        (b"\n", ["enter"]),
        (b"\t", ["tab"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        (b"\x03\x1a\x0c", ["ctrl-c", "ctrl-z", "ctrl-l"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH\x1bOF", ["home", "end"] * 3),
        (b"\x1b[Z", ["backtab"]),
        (b"\x1bOP\x1b[11~", ["f1", "f1"]),
        (b"\x1b[1;5A", ["up"]),
        (b"\x1b[5;2~", ["pageup"]),
        (b"\x1bOM", ["enter"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
    ],
)
def test_keys_are_decoded(data: bytes, keys: list[str]):
    assert KeyDecoder().feed(data) == keys


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[24~",
        b"\x1b[<0;10;10M",
        b"\x1b[?1;2c",
        b"\x1b]11;rgb:0000/0000/0000\x07",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1bP1$r0m\x1b\\",
        b"\x00",
        b"\x80\xff",
    ],
)
def test_answers_of_terminals_and_unknown_keys_are_dropped_as_a_whole(data: bytes):
    decoder = KeyDecoder()
    assert [*decoder.feed(data), *decoder.expire(), *decoder.feed(b"q")] == ["q"]


def test_a_single_escape_is_a_key_only_when_nothing_follows():
    decoder = KeyDecoder()
    assert not decoder.waiting
    assert decoder.feed(b"\x1b") == []
    assert decoder.expire() == ["escape"]
    assert decoder.expire() == []


@given(st.data())
def test_a_sequence_may_be_cut_anywhere(data: st.DataObject):
    text = "a\x1b[A\x1b[5~ż\x1bOB\x1b]11;x\x07b\r".encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    decoder = KeyDecoder()
    keys = [
        key
        for first, last in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for key in decoder.feed(text[first:last])
    ]
    assert keys == ["a", "up", "pageup", "ż", "down", "b", "enter"]


@given(st.binary(max_size=300))
def test_any_input_is_decoded(data: bytes):
    decoder = KeyDecoder()
    keys = [*decoder.feed(data), *decoder.expire()]
    assert all(len(key) > 1 or key.isprintable() for key in keys)


def test_a_sequence_that_never_ends_does_not_swallow_all_input():
    decoder = KeyDecoder()
    assert "q" in [key for _ in range(40) for key in decoder.feed(b"\x1b]00000q")]
