"""Parts of output files: offsets, characters of several bytes, and paths that are no files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcg.pilotjob.watch.output_files import read_output
from tests.support.second_user import irregular_files


def read(path: Path, offset: int = 0, limit: int = 65536):
    return read_output({"stdout": str(path)}, "stdout", offset, limit)


@given(st.text(), st.integers(4, 9))
def test_parts_make_up_the_whole_text(tmp_path_factory: pytest.TempPathFactory, text: str, limit: int):
    path = tmp_path_factory.mktemp("output") / "o"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    whole = path.read_bytes().decode("utf-8", "replace")
    found, offset = "", 0
    while offset < path.stat().st_size:
        part = read(path, offset, limit)
        assert part is not None
        assert part.next > offset
        found, offset = found + part.text, part.next
    if "\ufffd" not in whole:
        assert found == whole


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path):
    path = tmp_path / "o"
    path.write_bytes(b"\xff\xfe\x80abc")
    part = read(path)
    assert part is not None
    assert part.text == "\ufffd\ufffd\ufffdabc"
    assert part.next == part.size == 6


@pytest.mark.parametrize(
    ("offset", "text"), [(0, "abcdef"), (2, "cdef"), (6, ""), (99, ""), (-2, "ef"), (-99, "abcdef")]
)
def test_offsets_count_from_the_begin_or_the_end(tmp_path: Path, offset: int, text: str):
    path = tmp_path / "o"
    path.write_text("abcdef")
    part = read(path, offset)
    assert part is not None
    assert (part.text, part.next) == (text, 6)


def test_other_things_at_the_path_are_not_read(tmp_path: Path):
    path = tmp_path / "o"
    assert read(path) is None
    for _ in irregular_files(path):
        assert read(path) is None
    assert read_output({"stdout": "a\0b"}, "stdout", 0, 10) is None
    assert read_output({"stdout": os.fspath(tmp_path)}, "stdin", 0, 10) is None
    assert read_output({}, "stdout", 0, 10) is None
