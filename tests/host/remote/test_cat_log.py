"""Listing, showing and following the files of attempts."""

from __future__ import annotations

import os

from tests.host.remote.far_side import TIMEOUT, FarSide, encode, script, until


def test_files_of_an_attempt_are_listed_and_shown(far: FarSide) -> None:
    far.submit(script("1", "echo out"))
    far.ended("1")
    assert far.call("cat-log", directory="1/job-1/01", mode="list")["files"][0] == "job"
    reply, content = far.raw_call("cat-log", directory="1/job-1/NN", mode="cat", file="job.out")
    assert reply["ok"]
    assert content == b"out\n"


def test_logs_of_an_earlier_start_of_the_run_are_found(far: FarSide) -> None:
    far.submit(script("1", "echo out"))
    far.ended("1")
    far.init(log="log.20190101T000000Z")
    _, content = far.raw_call("cat-log", directory="1/job-1/NN", mode="cat", file="job.out")
    assert content == b"out\n"


def test_paths_that_are_no_file_of_an_attempt_are_refused(far: FarSide) -> None:
    far.submit(script("1", "ln -s /etc/passwd $QCG_PM_ATTEMPT_DIR/link"))
    far.ended("1")
    for directory, file, message in (
        ("1/job-1/../../../..", "job.out", "is not a directory of an attempt"),
        ("/etc", "passwd", "is not a directory of an attempt"),
        ("1/job-1/NN", "../NN/job.out", "is not the name of a file"),
        ("1/job-1/NN", "link", "it is a symbolic link"),
        ("1/job-1/NN", "missing", "there is: job, job.err, job.out, job.status"),
        ("1/unknown/NN", "job.out", "There is no attempt 1/unknown/NN"),
    ):
        reply, content = far.raw_call("cat-log", directory=directory, mode="cat", file=file)
        assert message in reply["error"]
        assert content == b""


def test_a_followed_file_ends_with_its_job(far: FarSide) -> None:
    far.submit(script("1", "echo one; until test -e ../go; do sleep 0.02; done; echo two"))
    with far.popen("cat-log") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        until((far.log / "job/1/job-1/NN/job.out").exists, "the output of the job")
        process.stdin.write(encode(far.request("cat-log", directory="1/job-1/NN", mode="tail", file="job.out")))
        process.stdin.close()
        seen = b""
        while not seen.endswith(b"one\n"):
            part = os.read(process.stdout.fileno(), 4096)
            assert part
            seen += part
        (far.run_dir / "work/1/go").touch()
        assert process.stdout.read() == b"two\n"


def test_following_ends_when_the_reader_is_gone(far: FarSide) -> None:
    far.submit(script("1", "echo one; sleep 1000"))
    until((far.log / "job/1/job-1/NN/job.out").exists, "the output of the job")
    with far.popen("cat-log") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode(far.request("cat-log", directory="1/job-1/NN", mode="tail", file="job.out")))
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT) == 0


def test_following_ends_with_the_input_of_a_reader_that_keeps_it_open(far: FarSide) -> None:
    """The ssh of the reader may outlive it, and keep reading."""
    far.submit(script("1", "echo one; sleep 1000"))
    until((far.log / "job/1/job-1/NN/job.out").exists, "the output of the job")
    request = far.request("cat-log", directory="1/job-1/NN", mode="tail", file="job.out", until_eof=True)
    with far.popen("cat-log") as process:
        assert process.stdin is not None
        process.stdin.write(encode(request))
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0
