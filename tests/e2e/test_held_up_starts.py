"""A process that a file system blocks before it executes its job, while its agent is killed."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.crashing import Crashing, marking
from tests.support.pilot import write_requests
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

JOBS = 200

HOLDING_UP = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static pid_t own;

__attribute__((constructor)) static void loaded(void) {
    own = getpid();
}

int chdir(const char *path) {
    /* In a child that is not its own program yet, and once. */
    if (getpid() != own && unlink("DIRECTORY/hold") == 0) {
        FILE *file = fopen("DIRECTORY/new", "w");
        fprintf(file, "%d", (int)getpid());
        fclose(file);
        rename("DIRECTORY/new", "DIRECTORY/held");
        for (;;)
            pause();
    }
    return syscall(SYS_chdir, path);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (package gcc)")
@pytest.mark.timeout(120)
def test_a_process_whose_agent_is_killed_before_exec_ends_and_the_job_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, library = tmp_path / "holding_up.c", tmp_path / "holding_up.so"
    source.write_text(HOLDING_UP.replace("DIRECTORY", str(tmp_path)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    hold = f"[ ${{it}} != {JOBS // 2} ] || touch hold"
    requests = write_requests(tmp_path / "requests.json", [marking("short", hold, iteration=JOBS)])
    crashing = Crashing(tmp_path, requests, "--nodes", "1", "--on-lost", "rerun")
    crashing.start()
    held = int(wait_for(lambda: _text(tmp_path / "held"), what="a process that is held up"))
    crashing.kill_agent()
    assert crashing.wait() == 0
    assert not is_alive(held)
    assert Counter(crashing.marks()) == dict.fromkeys([f"short:{index}" for index in range(JOBS)], 1)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
