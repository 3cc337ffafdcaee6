"""The programs in C: the limit of the machine, and a job that tells when it started."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

from bench import processes
from bench.finding import BenchError

SOURCES = Path(__file__).parent

_numbers = itertools.count(1)
_made: list[Path] = []


def build(name: str, directory: Path) -> Path:
    """Compile `name`.c, unless that has been done."""
    source = SOURCES / f"{name}.c"
    program = directory / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise BenchError("no C compiler: install gcc and libc6-dev, and the limit of this machine can be measured")
        directory.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([compiler, "-O2", "-pthread", "-o", program, source], capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{source.name} cannot be compiled: {done.stderr.strip()}")
    return program


def limit_seconds(directory: Path, count: int, parallel: int, threads: int, *, bound: bool = False) -> float:
    """How long this machine needs at least for `count` processes with an output file each; `bound`, each thread and
    what it starts to one core."""
    folder = fresh(directory / "limit-out")
    program = build("limit", directory / "bin")
    command = [str(program), str(count), str(parallel), str(threads), str(folder), *(["bound"] if bound else [])]
    done = processes.run(command, **processes.CAPTURED)
    if done.returncode:
        raise BenchError(f"the limit cannot be measured: {done.stderr.strip()}")
    return float(done.stdout)


def fresh(folder: Path) -> Path:
    """A new one in this folder. What is in it is removed when all is measured: on some file systems that goes on for a
    while, and whoever is timed next would pay for it."""
    new = folder / f"round-{next(_numbers)}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    _made.append(new)
    return new


def clear() -> None:
    """Remove all of them."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
