"""Run directories on file systems without locks."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.remote.far_side import FarSide, encode, launch, script, until

MAIN = """
import errno, fcntl, os, sys

def flock(descriptor, how):
    raise OSError(errno.{name}, os.strerror(errno.{name}))

fcntl.flock = flock
from qcg.pilotjob.host.remote.__main__ import main
sys.exit(main())
"""


@pytest.fixture(params=["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def far(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FarSide]:
    assert hasattr(errno, request.param)
    main = tmp_path / "far.py"
    main.write_text(MAIN.format(name=request.param))
    far = FarSide(tmp_path, command=[sys.executable, str(main)])
    yield far
    far.kill_everything()


def test_jobs_run_under_one_supervisor_and_the_manager_is_notified(far: FarSide) -> None:
    notices = far.init()["notices"]
    assert [notice for notice in notices if f"The file system of {far.run_dir} has no locks;" in notice]
    requests = [far.request("jobs-submit", launches=[script(str(number), "sleep 600")]) for number in range(4)]
    commands = [far.popen("jobs-submit") for _ in requests]
    for command, request in zip(commands, requests, strict=True):
        assert command.stdin is not None
        command.stdin.write(encode(request))
        command.stdin.close()
    for command in commands:
        with command:
            assert command.wait() == 0
    # A supervisor that found the name taken may still be exiting; a second one with jobs would stay.
    until(lambda: len(far.supervisor_pids()) == 1, "a single supervisor")
    assert sorted(running[0] for running in far.poll()["live"]) == ["0", "1", "2", "3"]
    assert len(far.call("jobs-kill", ids=["0", "1", "2", "3"], how="kill", reason="cancel", message="")["done"]) == 4
    far.submit(launch("4", "true"))
    assert [end[2] for end in far.ended("0", "1", "2", "3", "4")] == ["cancel"] * 4 + ["exit"]


def test_a_file_system_with_locks_has_no_notice(tmp_path: Path) -> None:
    far = FarSide(tmp_path)
    assert not [notice for notice in far.init()["notices"] if "no locks" in notice]
