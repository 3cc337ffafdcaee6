"""The far side as one file: the package `host/` as a zipapp, for any Python from 3.6.

It has sources, and next to them the bytecode of the Python that runs the manager: a far side with the same version of
Python starts in half the time. Other versions ignore the bytecode.
"""

from __future__ import annotations

import hashlib
import io
import marshal
import zipfile
from functools import lru_cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import NamedTuple

import qcg.pilotjob

_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Flags of a `.pyc` file with the hash of its source, which is not compared."""
_MAIN = """import runpy
runpy.run_module("qcg.pilotjob.host.remote", run_name="__main__")
"""


class FarProgram(NamedTuple):
    content: bytes
    digest: str
    """SHA-256 of the content, by which hosts keep it."""


@lru_cache(maxsize=1)
def far_program() -> FarProgram:
    """The same bytes for the same sources: dates and modes of files are left out."""
    files = {"__main__.py": _MAIN.encode(), "qcg/__init__.py": b""}
    package = Path(qcg.pilotjob.__file__).parent
    files["qcg/pilotjob/__init__.py"] = (package / "__init__.py").read_bytes()
    for path in (package / "host").rglob("*.py"):
        files[f"qcg/pilotjob/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    files.update({f"{name}c": _bytecode(name, source) for name, source in files.items()})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as writer:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            writer.writestr(entry, files[name])
    content = archive.getvalue()
    return FarProgram(content, hashlib.sha256(content).hexdigest())


def _bytecode(name: str, source: bytes) -> bytes:
    """The content of a `.pyc` file, which is used without a look at the time of its source."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    # Not the latest format of `marshal`, whose bytes depend on how often objects are referred to.
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source) + marshal.dumps(code, 2)
