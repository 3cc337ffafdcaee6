"""Copies a parameter file while it is scanned, so that the copy has exactly the scanned bytes."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

_DIGEST_BYTES = 16


class CopyReader:
    """Reads a file, and writes everything that was read to a copy."""

    def __init__(self, file: BinaryIO, copy: BinaryIO) -> None:
        self._file = file
        self._copy = copy
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._hash.update(content)
        self._copy.write(content)
        return content

    def digest(self) -> str:
        """The digest of the bytes read so far."""
        return self._hash.hexdigest()
