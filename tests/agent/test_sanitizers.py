"""The relay in C under the sanitizers of the compiler: memory errors, undefined behaviour and data races."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.project import PROJECT, ROOT

# The tests that compile take long, and share nothing.
pytestmark = pytest.mark.any_worker

SOURCE = ROOT / "src/qcg/pilotjob/agent"
INCLUDE = sysconfig.get_paths()["include"]

RUN_TESTS = """
import importlib.util, os, sys
import qcg.pilotjob.agent
spec = importlib.util.spec_from_file_location("qcg.pilotjob.agent._relay", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["qcg.pilotjob.agent._relay"] = qcg.pilotjob.agent._relay = module
del os.environ["LD_PRELOAD"]  # jobs are not instrumented
import pytest
arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest", "-s", "-k", sys.argv[2]]
sys.exit(pytest.main([*arguments, "tests/agent/test_relay_runner.py"]))
"""
SELECTED = ("order", "fails", "captured_for", "killed", "new_file", "cut_off", "one_thread", "same_time")
"""A word of the name of each test that is run in the short tier."""
SELECTION = f"Relayed and ({' or '.join(SELECTED)})"
WITHOUT_VFORK = "not (Unstartable or cannot_be_started or moved_along)"
"""The thread sanitizer turns `vfork` into `fork`: a child cannot report in its parent's memory why it did not start."""
(EXTENSION,) = PROJECT["tool"]["setuptools"]["ext-modules"]


can_compile = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path(INCLUDE, "Python.h").exists(), reason="the relay cannot be compiled here"
)
with_each_sanitizer = pytest.mark.parametrize(
    ("kinds", "library", "options"),
    [
        # CPython frees little of its memory at its end, so leaks are not searched for. The interpreter itself is not
        # instrumented, so the runtime library has to be loaded first, by LD_PRELOAD.
        ("address,undefined", "libasan.so", {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}),
        # Jobs are forked while other threads run, and continue in the child until they execute their program.
        ("thread", "libtsan.so", {"TSAN_OPTIONS": "die_after_fork=0 halt_on_error=1 report_signal_unsafe=0"}),
    ],
    ids=["address", "thread"],
)


@can_compile
@with_each_sanitizer
def test_the_relay_runs_jobs_without_a_report_of_a_sanitizer(
    tmp_path: Path, kinds: str, library: str, options: dict[str, str]
):
    passed = run_instrumented(tmp_path, kinds, library, options, SELECTION, timeout=110)
    assert passed >= len(SELECTED), "a selected test was renamed or removed"


@can_compile
@with_each_sanitizer
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_everything_that_the_relay_does_is_without_a_report_of_a_sanitizer(
    tmp_path: Path, kinds: str, library: str, options: dict[str, str]
):
    selection = WITHOUT_VFORK if kinds == "thread" else ""
    passed = run_instrumented(tmp_path, kinds, library, options, selection, timeout=1100)
    assert passed >= 130, "tests of the relay were removed, or have moved to another file"


def run_instrumented(
    directory: Path, kinds: str, library: str, options: dict[str, str], selection: str, timeout: float
) -> int:
    """Run the selected tests of the relay with the relay compiled for a sanitizer. Returns how many passed."""
    runtime = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    if not os.path.isabs(runtime.stdout.strip()):
        pytest.skip(f"the compiler has no {library}")
    module = directory / "_relay.abi3.so"
    sources = [str(path) for path in sorted(SOURCE.glob("relay*.c"))]
    build = ["gcc", "-shared", "-fPIC", "-g", "-O1", *EXTENSION["extra-compile-args"], "-Werror"]
    build += [f"-fsanitize={kinds}", "-fno-sanitize-recover=undefined", f"-I{INCLUDE}", *sources, "-o", str(module)]
    subprocess.run(build, check=True, timeout=60)
    # The thread sanitizer cannot work with all random layouts of memory.
    fixed_layout = ["setarch", "-R"] if shutil.which("setarch") else []
    done = subprocess.run(
        [*fixed_layout, sys.executable, "-c", RUN_TESTS, str(module), selection],
        cwd=ROOT,
        env={**os.environ, **options, "LD_PRELOAD": os.path.realpath(runtime.stdout.strip())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert "Sanitizer" not in done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-10_000:]
    return int(passed.group(1))


def test_the_extension_is_built_with_warnings_and_hides_its_functions():
    assert {"-Wall", "-Wextra", "-fvisibility=hidden"} <= set(EXTENSION["extra-compile-args"])


def test_the_extension_exports_nothing_but_its_init_function():
    """A function of the same name in another library of the process, such as `start` or `now`, would replace ours."""
    module = pytest.importorskip("qcg.pilotjob.agent._relay", reason="the relay was not compiled")
    library = ctypes.CDLL(module.__file__)
    headers = "".join(path.read_text() for path in sorted(SOURCE.glob("relay*.h")))
    functions = set(re.findall(r"^\w[\w ]*?[ *](\w+)\([^()]*\);", headers, re.MULTILINE))
    assert {"relay_open", "relay_offer", "start", "now"} <= functions
    assert hasattr(library, "PyInit__relay")
    assert [name for name in sorted({*functions, "no_output"}) if _defines(library, name)] == []


def _defines(library: ctypes.CDLL, name: str) -> bool:
    """Whether this library, and not one that it is linked with, has a function or variable of this name."""
    return hasattr(library, name) and not hasattr(ctypes.CDLL(None), name)
