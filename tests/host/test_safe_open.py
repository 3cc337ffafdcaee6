"""Files are opened only when they have the expected type and owner, and opening never blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qcg.pilotjob.host import safe_open
from qcg.pilotjob.host.safe_open import (
    UnsafeFile,
    check_own_directory,
    check_own_file,
    open_output,
    open_own,
    open_regular,
    read_input,
    read_own,
)
from tests.support.second_user import NAME, give_away, irregular_files, needs_root


def test_an_own_file_is_read(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")
    assert read_own(tmp_path / "file", 7) == b"content"
    check_own_file(tmp_path / "file")
    check_own_directory(tmp_path)


def test_a_missing_file_is_missing(tmp_path: Path):
    for look in (open_own, open_regular, check_own_file, check_own_directory):
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "file")


def test_nothing_but_a_regular_file_is_opened(tmp_path: Path):
    path = tmp_path / "file"
    for kind in irregular_files(path):
        for look in (open_own, open_regular, check_own_file):
            with pytest.raises(UnsafeFile, match=kind):
                look(path)
        with pytest.raises(UnsafeFile, match=kind):
            open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)


def test_nothing_but_a_directory_is_a_directory(tmp_path: Path):
    path = tmp_path / "file"
    path.touch(0o600)
    with pytest.raises(UnsafeFile, match="no regular file|it is"):
        check_own_directory(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(200 << 30)
    with pytest.raises(UnsafeFile, match="214748364800 bytes, more than the 1000 that are read"):
        read_own(path, 1000)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_to_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    with pytest.raises(UnsafeFile, match="other users can write to it"):
        open_own(path)
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(mode | 0o110)
    with pytest.raises(UnsafeFile, match="other users can write to it"):
        check_own_directory(directory)


@needs_root
def test_a_file_of_another_user_is_refused(tmp_path: Path):
    path = tmp_path / "file"
    path.touch(0o600)
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to("own")
    give_away(path)
    give_away(tmp_path / "link")
    for look in (open_own, check_own_file, check_own_directory):
        with pytest.raises(UnsafeFile, match=f"it belongs to {NAME}"):
            look(path)
    with pytest.raises(UnsafeFile, match=f"it belongs to {NAME}"):
        check_own_directory(tmp_path / "link")
    os.close(open_regular(path))


def _written_to(path: Path) -> bytes:
    descriptor = open_output(path, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"written")
    os.close(descriptor)
    return path.read_bytes()


def test_output_goes_to_new_and_own_files_and_through_own_links(tmp_path: Path):
    assert _written_to(tmp_path / "new") == b"written"
    assert _written_to(tmp_path / "new") == b"written"
    (tmp_path / "target").touch(0o664)
    (tmp_path / "link").symlink_to("target")
    assert _written_to(tmp_path / "link") == b"written"
    os.close(open_output("/dev/null", os.O_WRONLY))


def test_output_to_a_pipe_that_nobody_reads_does_not_block(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFile, match="a named pipe"):
        open_output(tmp_path / "pipe", os.O_WRONLY | os.O_CREAT)


@needs_root
def test_output_never_goes_through_a_link_or_to_a_file_of_another_user(tmp_path: Path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "link").symlink_to("target")
    give_away(tmp_path / "link")
    with pytest.raises(UnsafeFile, match=f"a symbolic link that belongs to {NAME}"):
        open_output(tmp_path / "link", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert target.read_bytes() == b"precious"
    give_away(target)
    with pytest.raises(UnsafeFile, match=f"it belongs to {NAME}"):
        open_output(target, os.O_WRONLY | os.O_TRUNC)
    assert target.read_bytes() == b"precious"


def test_input_comes_from_files_links_and_pipes(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_input(tmp_path / "file") == read_input(tmp_path / "link") == b"content"
    reader, writer = os.pipe()
    os.write(writer, b"content")
    os.close(writer)
    assert read_input(f"/dev/fd/{reader}") == b"content"
    os.close(reader)
    assert read_input("/dev/null") == b""


def test_input_has_a_timeout_and_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(safe_open, "WRITER_TIMEOUT", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFile, match="a named pipe that nobody writes to"):
        read_input(tmp_path / "pipe")
    with pytest.raises(UnsafeFile, match="a directory"):
        read_input(tmp_path)
    with pytest.raises(UnsafeFile, match="more than the 1 MiB that are read"):
        read_input("/dev/zero", 1 << 20)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(200 << 30)
    with pytest.raises(UnsafeFile, match="more than the 1024 MiB that are read"):
        read_input(tmp_path / "sparse")
