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

# The two tests that compile take long, and share nothing.
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
arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-k", sys.argv[2]]
sys.exit(pytest.main([*arguments, "tests/agent/test_relay_runner.py"]))
"""
SELECTED = ("order", "fails", "captured_for", "killed", "new_file", "cut_off", "one_thread", "same_time")
"""A word in the name of each test that is run."""
TESTS = f"Relayed and ({' or '.join(SELECTED)})"
(EXTENSION,) = PROJECT["tool"]["setuptools"]["ext-modules"]


@pytest.mark.skipif(
    shutil.which("gcc") is None or not Path(INCLUDE, "Python.h").exists(), reason="the relay cannot be compiled here"
)
@pytest.mark.parametrize(
    ("kinds", "library", "options"),
    [
        # CPython frees little of its memory at its end, so leaks are not searched for. The interpreter itself is not
        # instrumented, so the runtime library has to be loaded first, by LD_PRELOAD.
        ("address,undefined", "libasan.so", {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}),
        # Jobs are forked while other threads run, and the child continues until it executes the program of the job.
        ("thread", "libtsan.so", {"TSAN_OPTIONS": "die_after_fork=0 halt_on_error=1 report_signal_unsafe=0"}),
    ],
    ids=["address", "thread"],
)
def test_the_relay_runs_jobs_without_a_report_of_a_sanitizer(
    tmp_path: Path, kinds: str, library: str, options: dict[str, str]
):
    runtime = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    if not os.path.isabs(runtime.stdout.strip()):
        pytest.skip(f"the compiler has no {library}")
    module = tmp_path / "_relay.abi3.so"
    sources = [str(path) for path in sorted(SOURCE.glob("relay*.c"))]
    build = ["gcc", "-shared", "-fPIC", "-g", "-O1", *EXTENSION["extra-compile-args"], "-Werror"]
    build += [f"-fsanitize={kinds}", "-fno-sanitize-recover=undefined", f"-I{INCLUDE}", *sources, "-o", str(module)]
    subprocess.run(build, check=True, timeout=60)
    done = subprocess.run(
        # The thread sanitizer cannot work with all random layouts of memory.
        [*(["setarch", "-R"] if shutil.which("setarch") else []), sys.executable, "-c", RUN_TESTS, str(module), TESTS],
        cwd=ROOT,
        env={**os.environ, **options, "LD_PRELOAD": os.path.realpath(runtime.stdout.strip())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert "Sanitizer" not in done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-10_000:]
    assert int(passed.group(1)) >= len(SELECTED), "a selected test was renamed or removed"


def test_the_extension_is_built_with_warnings_and_hides_its_functions():
    assert {"-Wall", "-Wextra", "-fvisibility=hidden"} <= set(EXTENSION["extra-compile-args"])


def test_the_extension_exports_nothing_but_its_init_function():
    """The dynamic linker would use a function of the same name, such as `start` or `now`, from another library of the
    process."""
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
