"""Escaping of text with control characters."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from qcg.pilotjob.common.logs import LogFormatter
from qcg.pilotjob.common.printable import printable, printable_entry, printable_json, printable_lines
from tests.support.hostile_texts import HARMLESS, HOSTILE, harm_in


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_escaped_on_one_line(text: str):
    shown = printable(text)
    assert harm_in(shown, allowed="") == []
    assert "\\" in shown
    assert shown != text


@pytest.mark.parametrize("text", HARMLESS)
def test_printable_text_is_unchanged(text: str):
    assert printable(text) == text


def test_escapes_have_the_form_of_python_strings():
    assert printable("\x1b \x9b \u202e \U000e0041 \n \t \r \udcff") == r"\x1b \x9b \u202e \U000e0041 \n \t \r \xff"


def test_lines_and_tabs_stay_where_several_lines_are_meant():
    assert printable_lines("a\n\tb\x1bc") == "a\n\tb\\x1bc"


def test_further_lines_of_an_entry_are_indented():
    assert printable_entry("a\nb\nc") == "a\n    b\n    c"


@pytest.mark.parametrize(
    "text",
    [*(text for text in HOSTILE.values() if text.isascii() or text.isprintable()), *HARMLESS, "a\u202e\x9b\U000e0041b"],
)
def test_escaped_json_keeps_its_meaning_and_has_no_control_characters(text: str):
    escaped = printable_json(msgspec.json.encode({"text": text}))
    assert json.loads(escaped) == {"text": text}
    assert harm_in(escaped.decode(), allowed="") == []


def test_json_of_visible_characters_is_left_alone():
    document = msgspec.json.encode(HARMLESS)
    assert printable_json(document) == document


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_controls_the_terminal_or_forges_a_log_entry(text: str):
    try:
        raise ValueError(text)
    except ValueError as error:
        record = logging.LogRecord("x", logging.INFO, "file.py", 1, "job %s", (text,), (type(error), error, None))
    first, *further = LogFormatter().format(record).split("\n")
    assert further
    assert all(line.startswith("    ") for line in further)
    assert harm_in("\n".join([first, *further])) == []
