"""The index of a parameter file: where each row is, and a checksum of it.

The format: blocks of `ROWS_PER_BLOCK` rows, the last one shorter. A block has the offsets of its rows as 64-bit
numbers, then their lengths and then their checksums as 32-bit numbers, all of them little-endian.
"""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from qcg.pilotjob.host.safe_open import open_own

ROWS_PER_BLOCK = 4096
_ROW_BYTES = 16
_DIGEST_BYTES = 16


class RowPlace(NamedTuple):
    """Where a row is in its file."""

    offset: int
    length: int
    checksum: int
    """CRC-32 of its bytes."""


class IndexWriter:
    """Writes an index block by block, so that its size does not matter."""

    def __init__(self, file: BinaryIO | None) -> None:
        """`file`: None to compute only the digest."""
        self._file = file
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._offsets, self._lengths, self._checksums = array("Q"), array("I"), array("I")
        self._written = 0

    @property
    def rows(self) -> int:
        return self._written + len(self._offsets)

    def add(self, offsets: Iterable[int], lengths: Iterable[int], checksums: Iterable[int]) -> None:
        self._offsets.extend(offsets)
        self._lengths.extend(lengths)
        self._checksums.extend(checksums)
        while len(self._offsets) >= ROWS_PER_BLOCK:
            self._write(ROWS_PER_BLOCK)

    def finish(self) -> str:
        """Write the rest; returns the digest of the index."""
        if self._offsets:
            self._write(len(self._offsets))
        return self._hash.hexdigest()

    def _write(self, rows: int) -> None:
        for numbers in (self._offsets, self._lengths, self._checksums):
            block = numbers[:rows]
            del numbers[:rows]
            if sys.byteorder == "big":
                block.byteswap()
            content = block.tobytes()
            self._hash.update(content)
            if self._file is not None:
                self._file.write(content)
        self._written += rows


class IndexReader:
    """Reads the places of rows. The last block stays in memory, because rows are mostly read in order."""

    def __init__(self, path: str, rows: int) -> None:
        self._path = path
        self._rows = rows
        self._block = -1
        self._numbers: tuple[array[int], array[int], array[int]] = array("Q"), array("I"), array("I")

    def place(self, position: int) -> RowPlace:
        """The place of a row; raises OSError when the index cannot be read."""
        block, inside = divmod(position, ROWS_PER_BLOCK)
        self._select(block)
        offsets, lengths, checksums = self._numbers
        return RowPlace(offsets[inside], lengths[inside], checksums[inside])

    def differing(self, other: IndexReader) -> Iterator[int]:
        """Positions of rows whose content differs in the index of another file, with as many rows. Raises OSError."""
        for block in range(-(-self._rows // ROWS_PER_BLOCK)):
            self._select(block)
            other._select(block)
            (_, *mine), (_, *others) = self._numbers, other._numbers
            if mine != others:
                rows = enumerate(zip(*mine, *others, strict=True), block * ROWS_PER_BLOCK)
                yield from [position for position, row in rows if row[:2] != row[2:]]

    def _select(self, block: int) -> None:
        if block != self._block:
            self._numbers = self._read(block)
            self._block = block

    def _read(self, block: int) -> tuple[array[int], array[int], array[int]]:
        rows = min(ROWS_PER_BLOCK, self._rows - block * ROWS_PER_BLOCK)
        descriptor = open_own(self._path)
        try:
            content = os.pread(descriptor, rows * _ROW_BYTES, block * ROWS_PER_BLOCK * _ROW_BYTES)
        finally:
            os.close(descriptor)
        if len(content) != rows * _ROW_BYTES:
            raise OSError(0, "it is cut short", self._path)
        numbers = (
            array("Q", content[: rows * 8]),
            array("I", content[rows * 8 : rows * 12]),
            array("I", content[rows * 12 :]),
        )
        if sys.byteorder == "big":
            for one in numbers:
                one.byteswap()
        return numbers


def digest_of(path: str) -> str:
    """The digest of an index file; raises OSError when it cannot be read."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with os.fdopen(open_own(path), "rb") as file:
        while content := file.read(1 << 20):
            found.update(content)
    return found.hexdigest()
