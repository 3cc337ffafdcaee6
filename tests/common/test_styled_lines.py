"""Tables as lines of text."""

from __future__ import annotations

from qcg.pilotjob.common.styled_lines import BOLD, Line, plain_text, table_lines


def test_columns_are_as_wide_as_their_widest_cell():
    lines = table_lines(["name", "jobs"], [["a", 10000], ["a longer one", 7]], right=["jobs"])
    assert plain_text(lines) == "name           jobs\na             10000\na longer one      7\n"


def test_lines_have_no_blanks_at_their_end():
    assert [line.text for line in table_lines(["name", "message"], [["a", ""]])] == ["name  message", "a"]


def test_the_head_is_bold_and_rows_have_the_style_of_their_cells():
    lines = table_lines(
        ["state"], [["FAILED"], ["other"]], style_of=lambda cells: "red" if cells[0] == "FAILED" else ""
    )
    assert lines == [Line("state", BOLD), Line("FAILED", "red"), Line("other")]


def test_control_characters_of_cells_are_escaped():
    assert table_lines(["name"], [["a\x1b[2J"], ["b\nc"]])[1:] == [Line("a\\x1b[2J"), Line("b\\nc")]
