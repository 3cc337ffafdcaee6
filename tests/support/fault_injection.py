"""Makes the n-th file system call of a command fail, with a preloaded library."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")


class Faults:
    """The library, and environments in which calls fail."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no gcc here")
        self._directory = directory
        self._library = directory / "faults.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE, "-ldl"], check=True)

    def environment(
        self, path: str, call: int = 0, error: int = 0, *, more: int = 0, process: str = ""
    ) -> dict[str, str]:
        """Fail this call of all that touch files with `path` in their names, and `more` after it. 0: none, only count.
        `process`: a text in the command line of the process that is meant, otherwise it is the first one."""
        self.count_file.unlink(missing_ok=True)
        chosen = {
            "LD_PRELOAD": str(self._library),
            "FAULT_PATH": path,
            "FAULT_CALL": str(call),
            "FAULT_ERRNO": str(error),
            "FAULT_MORE": str(more),
            "FAULT_COUNT": str(self.count_file),
        }
        if process:
            chosen["FAULT_PROCESS"] = process
        return {**os.environ, **chosen}

    @property
    def count_file(self) -> Path:
        return self._directory / "count"

    def calls(self) -> int:
        """The number of calls of the last process that could have failed."""
        return int(self.count_file.read_text().split()[0])

    def failed_call(self) -> str:
        return self.count_file.read_text().split()[1] if self.count_file.exists() else "unknown"
