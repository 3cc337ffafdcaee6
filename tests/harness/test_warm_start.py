"""A command that is forked from the command server cannot be told from one that is started anew."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import pilot, warm_start
from tests.support.pilot import run, start

PRINTS_ITS_SURROUNDINGS = """
import atexit, json, os, resource, signal, subprocess, sys, time
streams = (sys.stdin, sys.stdout, sys.stderr)
found = {
    "arguments": sys.argv,
    "original arguments": sys.orig_argv,
    "directory": os.getcwd(),
    "path": sys.path[:1],
    "environment": dict(os.environ),
    "variable of C": subprocess.getoutput("echo $GIVEN"),
    "zone": time.tzname,
    "descriptors": {name: os.readlink(f"/proc/self/fd/{name}")[:5] for name in os.listdir("/proc/self/fd")[:-1]},
    "input": sys.stdin.read() if "read" in sys.argv else "",
    "signals": {number: str(signal.getsignal(number)) for number in (1, 2, 13, 15)},
    "blocked signals": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "streams": [(one.encoding, one.errors, one.line_buffering, one.write_through) for one in streams],
    "buffers": [type(one.buffer).__name__ for one in streams],
    "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "parent": os.getppid(),
    "session": os.getsid(0),
    "group": os.getpgid(0),
    "name": __name__,
    "limits": [resource.getrlimit(limit) for limit in range(10)],
}
atexit.register(print, "the end")
print(json.dumps(found))
"""
ENDS = {
    "none": "print('out')",
    "code": "import sys; print('out', end=''); sys.exit(7)",
    "text": "import sys; sys.exit('because')",
    "exception": "def call(): raise ValueError('because')\ncall()",
    "thread": "import threading, time; threading.Timer(0.1, print, ['late']).start()",
    "signal": "import os; os.kill(os.getpid(), 9)",
    "interrupt": "import os, time; os.kill(os.getpid(), 2); time.sleep(60)",
}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch):
    def define(text: str) -> None:
        monkeypatch.setitem(pilot.COMMANDS, "program", ["-c", text])

    return define


def both_ways(monkeypatch: pytest.MonkeyPatch, *arguments: str, **options) -> list[subprocess.CompletedProcess[str]]:
    forked = start("program", *arguments, **options)
    assert isinstance(forked, warm_start.Command)
    done = [subprocess.CompletedProcess([], *_result(forked))]
    with monkeypatch.context() as patch:
        patch.setattr(warm_start, "_may_fork", False)
        anew = start("program", *arguments, **options)
        assert not isinstance(anew, warm_start.Command)
        done.append(subprocess.CompletedProcess([], *_result(anew)))
    return done


def _result(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


def test_the_surroundings_are_the_same(program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program(PRINTS_ITS_SURROUNDINGS)
    environment = {**os.environ, "GIVEN": "here", "\udcff": "\udcfe"}
    forked, anew = both_ways(monkeypatch, "a", "\udcff", cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL)
    assert forked.stderr == anew.stderr == ""
    first, last = forked.stdout.splitlines()
    assert (json.loads(first), last) == (json.loads(anew.stdout.splitlines()[0]), "the end")
    assert json.loads(first)["variable of C"] == "here"
    assert json.loads(first)["parent"] == os.getpid()


def test_streams_of_the_caller_are_used(program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program(PRINTS_ITS_SURROUNDINGS)
    (tmp_path / "in").write_text("text")
    found = []
    for _ in range(2):
        with (tmp_path / "in").open() as given:
            done = both_ways(monkeypatch, "read", cwd=tmp_path, stdin=given)
        found += [json.loads(one.stdout.splitlines()[0])["input"] for one in done]
    assert found == ["text", "", "text", ""], "the two processes share the position in the file"


@pytest.mark.parametrize("end", ENDS)
def test_the_end_is_the_same(program, monkeypatch: pytest.MonkeyPatch, end: str):
    program(ENDS[end])
    forked, anew = both_ways(monkeypatch)
    assert (forked.returncode, forked.stdout) == (anew.returncode, anew.stdout)
    assert forked.stderr.splitlines()[-2:] == anew.stderr.splitlines()[-2:]


def test_modules_are_those_of_the_server(program):
    program("import sys; print('qcg.pilotjob.manager.engine' in sys.modules)")
    assert run("program").stdout == "True\n"


@pytest.mark.cold_start
def test_modules_are_loaded_anew_in_a_test_with_the_marker(program):
    program("import sys; print('qcg.pilotjob.manager.engine' in sys.modules)")
    assert run("program").stdout == "False\n"


@pytest.mark.parametrize("changed", ["PYTHONPATH", "LC_ALL", "LD_PRELOAD_PATH", "TZ"])
def test_an_interpreter_that_starts_otherwise_is_started_anew(program, changed: str):
    program("pass")
    with start("program", env={**os.environ, changed: "C"}) as process:
        assert not isinstance(process, warm_start.Command)


def test_other_limits_and_options_start_anew(program):
    program("pass")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with start("program") as process:
            assert not isinstance(process, warm_start.Command)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with start("program", start_new_session=True) as process:
        assert not isinstance(process, warm_start.Command)


def test_a_signal_right_after_the_start_is_not_lost(program):
    program("import time; time.sleep(60)")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with start("program") as process:
            process.send_signal(number)
            assert process.wait(60) == -number


def test_a_command_that_cannot_start_is_an_error(program, tmp_path: Path):
    program("pass")
    with pytest.raises(RuntimeError, match="could not start"):
        start("program", cwd=tmp_path / "missing")
    assert run("program").returncode == 0, "the server continues"
