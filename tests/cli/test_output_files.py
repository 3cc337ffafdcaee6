"""The last lines and the paths of output files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.cli import output_files
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.cli.output_files import NoOutput, NoOutputYet, path_of, show_end


class Out(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    @property
    def written(self) -> bytes:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 65536])
@pytest.mark.parametrize(
    ("content", "lines", "shown"),
    [
        (b"", None, b""),
        (b"", 3, b""),
        (b"a\nb\nc\n", None, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n\n", 2, b"b\n\n"),
        (b"long line\nanother long line\n", 1, b"another long line\n"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 99, b"a\nb\nc\n"),
        (b"\xff\x00no text\n\x1b[1m", 1, b"\x1b[1m"),
    ],
)
def test_the_last_lines_are_shown_unchanged(
    content: bytes, lines: int | None, shown: bytes, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "out"
    path.write_bytes(content)
    monkeypatch.setattr(output_files, "CHUNK", chunk)
    out = Out()
    monkeypatch.setattr("sys.stdout", out)
    show_end(str(path), lines)
    assert out.written == shown


def test_a_missing_file_is_an_error_message(tmp_path: Path):
    with pytest.raises(Denial, match="cannot be read: No such file"):
        show_end(str(tmp_path / "none"), None)


def test_missing_saved_output_counts_as_no_output(tmp_path: Path):
    assert not show_end(str(tmp_path / ".qcgpjm-service-x/out/job.err"), None)


def test_a_pipe_is_not_read_from(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Denial, match="is no file"):
        show_end(str(tmp_path / "pipe"), None)


@pytest.mark.parametrize(
    ("entry", "kind", "sentence"),
    [
        ({"status": 1, "message": "there is no job 'x'"}, Denial, "there is no job 'x'"),
        ({"status": 0, "data": {"status": "QUEUED"}}, NoOutputYet, "is QUEUED and has written nothing"),
        ({"status": 0, "data": {"status": "OMITTED"}}, NoOutput, "is OMITTED and has written nothing"),
        ({"status": 0, "data": {"status": "FAILED", "runtime": {}}}, NoOutput, "was never started"),
        ({"status": 0, "data": {"status": "EXECUTING", "runtime": {}}}, NoOutputYet, "names no file for its stdout"),
        ({"status": 0, "data": {"status": "SUCCEED", "runtime": {}}}, NoOutput, "run it with --keep-output"),
        (
            {"status": 0, "data": {"status": "QUEUED", "iterations": {"start": 4}}},
            Denial,
            "name one of them, such as x:4",
        ),
    ],
)
def test_a_job_without_a_file_says_why(entry: dict[str, Any], kind: type[Denial], sentence: str):
    with pytest.raises(Denial, match=sentence) as caught:
        path_of("x", entry, "stdout")
    assert caught.type is kind


def test_the_file_of_a_job_is_the_one_that_its_manager_names():
    entry = {"status": 0, "data": {"status": "EXECUTING", "runtime": {"stdout": "/a", "stderr": "/b"}}}
    assert path_of("x", entry, "stderr") == "/b"
