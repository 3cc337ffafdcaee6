"""Reading stream files: by their index, without it, while they grow, and damaged by a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qcg.pilotjob.host.stream_format import (
    END,
    FILE_HEADER,
    FRAME,
    INDEX_RECORD,
    OPEN,
    STDERR,
    STDOUT,
    Opening,
    file_name,
    frame_header,
    index_record,
    key_of,
)
from qcg.pilotjob.runs.output_streams import OutputStreams, without_ordinal


class Writing:
    """Writes a stream file frame by frame."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._path = directory / file_name("node", os.getpid(), len([*directory.iterdir()]))
        self._data, self._records = FILE_HEADER, b""
        self._size = len(FILE_HEADER)
        self._last: dict[int, tuple[int, int, bytes]] = {}

    def open(self, number: int, name: str, *, id: str = "", part: int = 1, at: float = 0.0) -> None:
        opened = self._append(OPEN, number, Opening(name, id or str(number), part, at).encoded(), 0)
        self._last[number] = (opened, opened, key_of(name))
        self._records += index_record(key_of(name), opened, 0, number)

    def write(self, number: int, data: bytes, kind: int = STDOUT) -> int:
        opened, last, key = self._last[number]
        offset = self._append(kind, number, data, last)
        self._last[number] = (opened, offset, key)
        return offset

    def end(self, number: int) -> None:
        offset = self.write(number, b"", END)
        opened, _, key = self._last[number]
        self._records += index_record(key, opened, offset, number)

    def flush(self, *, index: bool = True) -> None:
        for suffix, data in ((".stream", self._data), (".index", self._records if index else b"")):
            with self._path.with_name(self._path.name + suffix).open("ab") as file:
                file.write(data)
        self._data = self._records = b""

    def _append(self, kind: int, number: int, payload: bytes, previous: int) -> int:
        offset = self._size
        self._data += frame_header(kind, number, payload, previous) + payload
        self._size += FRAME.size + len(payload)
        return offset


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "streams"


def read(directory: Path, name: str, kind: int = STDOUT) -> bytes | None:
    with OutputStreams(directory) as streams:
        attempt = streams.attempt(name)
        if attempt is None:
            return None
        chunks = [*attempt.chunks(kind)]
        assert [*attempt.last_chunks(kind)] == chunks[::-1]
        return b"".join(chunks)


def two_attempts(directory: Path) -> Writing:
    writing = Writing(directory)
    writing.open(1, "a")
    writing.open(2, "b")
    writing.write(1, b"one ")
    writing.write(2, b"two ")
    writing.write(1, b"wrong", STDERR)
    writing.write(1, b"more")
    writing.write(2, b"rest")
    writing.end(1)
    return writing


def stream_path(directory: Path) -> Path:
    return next(directory.glob("*.stream"))


@pytest.mark.parametrize("index", [True, False])
def test_interleaved_attempts_are_separated(directory: Path, index: bool):
    two_attempts(directory).flush(index=index)
    assert read(directory, "a") == b"one more"
    assert read(directory, "a", STDERR) == b"wrong"
    assert read(directory, "b") == b"two rest"
    assert read(directory, "c") is None


def test_frames_that_the_index_lacks_are_found(directory: Path):
    writing = two_attempts(directory)
    writing.flush()
    writing.open(3, "c")
    writing.write(3, b"three")
    writing.write(2, b" of two")
    writing.end(2)
    writing.flush(index=False)
    assert (read(directory, "b"), read(directory, "c")) == (b"two rest of two", b"three")


def test_a_frame_that_was_cut_off_is_skipped_and_the_rest_is_read(directory: Path):
    writing = two_attempts(directory)
    writing.write(2, b"cut off")
    writing.flush()
    path = stream_path(directory)
    for size in range(path.stat().st_size - 1, path.stat().st_size - FRAME.size - len(b"cut off") - 1, -1):
        os.truncate(path, size)
        assert (read(directory, "a"), read(directory, "b")) == (b"one more", b"two rest")


def test_a_damaged_frame_in_the_middle_is_skipped_and_counted(directory: Path):
    writing = two_attempts(directory)
    at = writing.write(2, b"damaged")
    writing.write(2, b" after")
    writing.end(2)
    writing.flush()
    path = stream_path(directory)
    data = bytearray(path.read_bytes())
    data[at : at + FRAME.size] = bytes(FRAME.size)
    path.write_bytes(data)
    with OutputStreams(directory) as streams:
        attempt = streams.attempt("b")
        assert attempt is not None
        assert b"".join(attempt.chunks(STDOUT)) == b"two rest after"
        assert streams.damaged == 1


def test_a_frame_whose_content_was_lost_with_its_node_is_skipped(directory: Path):
    writing = two_attempts(directory)
    at = writing.write(2, b"damaged")
    writing.write(2, b" after")
    writing.flush()
    path = stream_path(directory)
    data = bytearray(path.read_bytes())
    data[at + FRAME.size : at + FRAME.size + 7] = bytes(7)
    path.write_bytes(data)
    assert read(directory, "b") == b"two rest after"


def test_zeros_at_the_end_are_no_frames(directory: Path):
    two_attempts(directory).flush()
    with stream_path(directory).open("ab") as file:
        file.write(bytes(100_000))
    assert read(directory, "b") == b"two rest"


def test_a_damaged_index_record_costs_no_output(directory: Path):
    writing = two_attempts(directory)
    writing.end(2)
    writing.flush()
    (index,) = directory.glob("*.index")
    data = bytearray(index.read_bytes())
    data[-INDEX_RECORD.size :] = bytes(INDEX_RECORD.size)
    index.write_bytes(data + b"torn")
    assert (read(directory, "a"), read(directory, "b")) == (b"one more", b"two rest")


def test_parts_of_several_files_make_one_output(directory: Path):
    second, first = Writing(directory), Writing(directory)
    first.open(7, "a", id="1.1", part=1, at=1.0)
    first.write(7, b"first ")
    first.flush()
    second.open(1, "a", id="1.1", part=2, at=2.0)
    second.write(1, b"second")
    second.end(1)
    second.flush()
    assert read(directory, "a") == b"first second"


def test_the_last_of_several_starts_is_read(directory: Path):
    writing = Writing(directory)
    for number, text in enumerate((b"one", b"two"), 1):
        writing.open(number, "a", id=f"1.{number}", at=float(number))
        writing.write(number, text)
        writing.end(number)
    writing.flush()
    assert read(directory, "a") == b"two"
    with OutputStreams(directory) as streams:
        assert [attempt.id for attempt in streams.last_attempts()] == ["1.2"]


def test_files_of_others_are_not_read(directory: Path):
    two_attempts(directory).flush()
    stream_path(directory).chmod(0o666)
    assert read(directory, "a") is None


def test_there_are_no_attempts_without_a_directory(directory: Path):
    assert read(directory, "a") is None


def test_the_number_of_an_attempt_is_not_part_of_a_name():
    assert without_ordinal("sim.7~12") == ("sim.7", 12)
    assert without_ordinal("sim.7") == ("sim.7", 1)
    assert without_ordinal("long~1234567890123456") == ("long~1234567890123456", 1)
