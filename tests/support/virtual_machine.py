"""A virtual machine for tests that need a Linux kernel of their own: QEMU without hardware acceleration, the kernel of
a Debian package, and a root file system in memory with copies of files of this machine: its Python, a shell, and the
modules that a test program imports."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import guest_init
from tests.support.project import ROOT

PROGRAM = "qemu-system-x86_64"
MEMORY = 1024
"""MiB of the virtual machine."""
SWAP = 256
"""MiB of its swap space."""
TIMEOUT = 300.0
"""Seconds until a virtual machine that hangs is ended."""

_COMMANDS = ("/bin/sh", "/bin/sleep")
_LATER = ("encodings.ascii", "encodings.latin_1")
"""Modules that Python imports when they are needed first."""
_LIBRARY = re.compile(r"(/\S+) \(0x")
"""A path in the output of ldd."""
_LIST_MODULES = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
for module in list(sys.modules.values()):
    for path in (getattr(module, "__file__", None), getattr(module, "__cached__", None)):
        if path:
            print(path)
"""


def run_in_vm(directory: Path, module: str) -> str:
    """Run the unit tests of a module as root of a new virtual machine. Returns what the machine wrote to its console.
    The test is skipped where the packages for it are missing. `directory`: for temporary files."""
    missing = _missing()
    if missing:
        pytest.skip(f"needs {missing}")
    root, swap = directory / "root.cpio", directory / "swap"
    root.write_bytes(_root_files(module))
    with swap.open("wb") as file:
        file.truncate(SWAP << 20)
    # This processor has no wide registers, which are slow to emulate; Python needs random numbers when it starts.
    machine = [PROGRAM, "-accel", "tcg", "-cpu", "qemu64,+rdrand", "-m", str(MEMORY), "-nodefaults", "-no-user-config"]
    machine += ["-display", "none", "-serial", "stdio", "-no-reboot"]
    machine += ["-drive", f"file={swap},format=raw,if=none,id=swap", "-device", "nvme,drive=swap,serial=swap"]
    machine += ["-kernel", str(_kernels()[-1]), "-initrd", str(root)]
    # Only emergencies of the kernel are shown. On a panic the machine restarts at once, and so ends.
    machine += ["-append", "console=ttyS0 loglevel=1 panic=-1 no_timer_check"]
    try:
        ended = subprocess.run(
            machine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT
        )
        output = ended.stdout
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"") + b"\nThe virtual machine was ended: it took too long.\n"
    finally:
        root.unlink()
        swap.unlink()
    return output.decode("utf-8", "replace").replace("\r\n", "\n")


def _missing() -> str:
    """What a virtual machine needs and this machine does not have; empty when it has everything."""
    if platform.machine() != "x86_64":
        return "a processor of the kind x86_64"
    if shutil.which(PROGRAM) is None:
        return "the package qemu-system-x86"
    return "" if _kernels() else "a kernel, which tests/system-packages unpacks"


def _kernels() -> list[Path]:
    return sorted((ROOT / "build/kernel/boot").glob("vmlinuz-*"))


def _root_files(module: str) -> bytes:
    """The root file system, as an archive that the kernel unpacks."""
    # The interpreter itself, not the link to it in a virtual environment.
    python = os.path.realpath(sys.executable)
    search = [str(ROOT / "src"), str(ROOT)]
    listing = subprocess.run(
        [python, "-S", "-c", _LIST_MODULES, guest_init.__name__, module, *_LATER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    modules = [path for path in listing.stdout.splitlines() if os.path.exists(path)]
    binaries = [python, *_COMMANDS, *(path for path in modules if ".so" in Path(path).suffixes)]
    libraries = _LIBRARY.findall(subprocess.run(["ldd", *binaries], stdout=subprocess.PIPE, text=True).stdout)
    archive = _Archive()
    for path in sorted({*binaries, *modules, *libraries}):
        archive.add_copy(path)
    init = (
        f"#!{python} -S\nimport sys\nsys.path[:0] = {search!r}\n"
        f"from {guest_init.__name__} import main\nmain({module!r})\n"
    )
    archive.add_file("/init", init.encode(), 0o755)
    for directory in ("/dev", "/proc", "/sys", "/tmp"):
        archive.add_directory(directory)
    return archive.content()


class _Archive:
    """An archive in the format `newc` of cpio."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._directories = {"", "/"}

    def add_copy(self, path: str) -> None:
        status = os.stat(path)
        # Compiled modules name the modification times of their sources.
        self.add_file(path, Path(path).read_bytes(), status.st_mode & 0o777, int(status.st_mtime))

    def add_file(self, path: str, data: bytes, mode: int, modified: int = 0) -> None:
        self.add_directory(os.path.dirname(path))
        self._add(path, 0o100000 | mode, data, modified)

    def add_directory(self, path: str) -> None:
        if path not in self._directories:
            self.add_directory(os.path.dirname(path))
            self._directories.add(path)
            self._add(path, 0o040755, b"", 0)

    def content(self) -> bytes:
        self._add("/TRAILER!!!", 0, b"", 0)
        return b"".join(self._parts)

    def _add(self, path: str, mode: int, data: bytes, modified: int) -> None:
        name = path.lstrip("/").encode() + b"\0"
        numbers = (len(self._parts) + 1, mode, 0, 0, 1, modified, len(data), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
        self._parts.append(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))
