"""Small file systems, and full ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest


def mounting(directory: Path) -> Iterator[Callable[..., Path]]:
    """Makes small file systems that go away with the test."""
    made: list[Path] = []

    def make(name: str, options: str) -> Path:
        path = directory / name
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        made.append(path)
        return path

    yield make
    for path in made:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> None:
    """Write to this file until the file system is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
