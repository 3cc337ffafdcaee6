"""The C programs: the limit of the machine, and a job that prints the time of its start."""

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
    """Compile `name`.c unless it is up to date."""
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
    """Shortest time of this machine for `count` processes with an output file each. `bound`: bind each thread and its
    processes to one core."""
    folder = fresh(directory / "limit-out")
    program = build("limit", directory / "bin")
    command = [str(program), str(count), str(parallel), str(threads), str(folder), *(["bound"] if bound else [])]
    done = processes.run(command, **processes.CAPTURED)
    if done.returncode:
        raise BenchError(f"the limit cannot be measured: {done.stderr.strip()}")
    return float(done.stdout)


def fresh(folder: Path) -> Path:
    """A new directory in this folder. `clear` removes it after all measurements, because on some file systems removal
    continues in the background and would slow down the next measurement."""
    new = folder / f"round-{next(_numbers)}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    _made.append(new)
    return new


def clear() -> None:
    """Remove all directories made by `fresh`."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
