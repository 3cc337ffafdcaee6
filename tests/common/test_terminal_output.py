"""Output of programs on a terminal."""

from __future__ import annotations

import pytest

from qcg.pilotjob.common.terminal_output import TerminalText
from tests.support.hostile_texts import HARMLESS, HOSTILE, harm_in


def shown(data: bytes, pieces: int = 1) -> str:
    text = TerminalText()
    size = -(-len(data) // pieces)
    return "".join(text.feed(data[at : at + size]) for at in range(0, len(data), size)) + text.end()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_output_is_escaped_in_pieces_of_any_size(text: str):
    data = text.encode("utf-8", "surrogatepass")
    assert harm_in(shown(data)) == []
    for pieces in range(2, len(data) + 1):
        assert shown(data, pieces) == shown(data)


@pytest.mark.parametrize("text", HARMLESS)
def test_printable_output_is_unchanged_in_pieces_of_any_size(text: str):
    data = text.encode()
    assert {shown(data, pieces) for pieces in range(1, len(data) + 1)} == {text}


def test_colours_are_kept_and_reset_at_the_end():
    data = b"\x1b[1;31merror\x1b[m and \x1b[38;2;1;2;3mmore"
    for pieces in range(1, len(data) + 1):
        assert shown(data, pieces) == data.decode() + "\x1b[0m"


@pytest.mark.parametrize(
    "data", [b"\x1b[31", b"\x1b[", b"\x1b", b"\x1b[31\x1b[0m", b"\x1b[31K", b"\x1b[?25l", b"\xff\xfe"]
)
def test_incomplete_colour_codes_are_escaped(data: bytes):
    assert harm_in(shown(data).replace("\x1b[0m", "")) == []


def test_a_carriage_return_starts_a_new_line():
    assert shown(b"10 %\r20 %\r\ndone\r") == "10 %\n20 %\ndone\n"
    assert shown(b"10 %\r20 %\r\ndone\r", 17) == "10 %\n20 %\ndone\n"
