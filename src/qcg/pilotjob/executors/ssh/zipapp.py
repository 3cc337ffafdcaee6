"""The far side as one file: the package `host/` as a zipapp, for any Python from 3.6."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import qcg.pilotjob

_EPOCH = (1980, 1, 1, 0, 0, 0)
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
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as writer:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            writer.writestr(entry, files[name])
    content = archive.getvalue()
    return FarProgram(content, hashlib.sha256(content).hexdigest())
