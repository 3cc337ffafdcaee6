"""Runs that collect the output of many jobs in few files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qcg.pilotjob.host.stream_format import KINDS
from qcg.pilotjob.runs.output_streams import OutputStreams
from tests.support.crashing import Crashing
from tests.support.pilot import job, run, run_requests, start, write_requests
from tests.support.processes import is_alive
from tests.support.serving import Served
from tests.support.tiers import per_tier
from tests.support.waiting import wait_for

NOT_TEXT = r"printf '\000\377\r${it}\303'; printf 'no line break' >&2"


def streaming(name: str, script: str, **more: Any) -> dict[str, Any]:
    return job(name, script=script, output="stream", **more)


def run_dir(wd: Path) -> Path:
    return next(wd.glob(".qcgpjm-service-*"))


def pm(wd: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("qcg-pm", *arguments, "--path", wd)


def stored(wd: Path, name: str, stream: str = "stdout") -> bytes:
    with OutputStreams(run_dir(wd) / "streams") as streams:
        attempt = streams.attempt(name)
        return b"" if attempt is None else b"".join(attempt.chunks(KINDS[stream]))


@pytest.mark.sampled
@pytest.mark.timeout(per_tier(300, 1800))
def test_many_iterations_leave_two_files_and_every_byte(tmp_path: Path):
    count = per_tier(1000, 10_000)
    path = write_requests(tmp_path / "requests.json", [streaming("sim", NOT_TEXT, iteration=count)])
    done = run("qcg-pm", "run", path, "--wd", tmp_path, "--nodes", "4", timeout=per_tier(250, 1000))
    assert done.returncode == 0, done.stderr
    files = sorted((run_dir(tmp_path) / "streams").iterdir())
    assert [file.suffix for file in files] == [".index", ".stream"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert files[0].name.startswith("local.")
    assert not (run_dir(tmp_path) / "out").exists()
    last = count - 1
    assert stored(tmp_path, f"sim.{last}") == b"\0\xff\r%d\xc3" % last
    assert pm(tmp_path, "logs", "-e", f"sim:{last}").stdout == "no line break"
    exported = run("qcg-pm", "logs", "--export", tmp_path / "all", "--path", tmp_path, timeout=per_tier(60, 600))
    assert f"{2 * count} files in" in exported.stdout
    contents = {file.name: file.read_bytes() for file in (tmp_path / "all").iterdir()}
    expected = {f"sim.{index}.out": b"\0\xff\r%d\xc3" % index for index in range(count)}
    assert contents == {**expected, **{f"sim.{index}.err": b"no line break" for index in range(count)}}


def test_output_is_shown_by_job_stream_and_line(tmp_path: Path):
    script = "seq 1 3; echo wrong ${it} >&2; exit $((${it} % 2))"
    result = run_requests(tmp_path, [streaming("sim", script, iteration=2), streaming("quiet", ":")])
    assert pm(tmp_path, "logs", "sim:0").stdout == "1\n2\n3\n"
    assert pm(tmp_path, "logs", "-n", "2", "sim:0").stdout == "2\n3\n"
    assert pm(tmp_path, "logs", "-n", "0", "sim:0").stdout == ""
    several = pm(tmp_path, "logs", "-e", "sim:*").stdout
    assert several == "==> sim:0: stderr <==\nwrong 0\n==> sim:1: stderr <==\nwrong 1\n"
    some = pm(tmp_path, "logs", "sim:*", "quiet")
    assert some.stdout.count("==>") == 2
    assert some.stderr.startswith("1 of 3 have no output on stdout\n")
    for lines in ([], ["-n", "1"]):
        assert "quiet has no output on its stdout\n" in pm(tmp_path, "logs", *lines, "quiet").stderr
    assert "quiet has no output on its stdout\n" in pm(tmp_path, "logs", "quiet").stderr
    ways = "name one of them, such as sim:0, or all with 'sim:*'. --export DIR writes"
    assert ways in pm(tmp_path, "logs", "sim").stderr
    streams = run_dir(tmp_path) / "streams"
    assert f"sim:1 FAILED: exit code 1; the end of stderr of sim.1 in {streams}:\n    wrong 1\n" in result.done.stdout
    assert f"the end of stderr of sim.1 in {streams}:\n    wrong 1\n" in pm(tmp_path, "why", "sim:1").stdout
    runtime = json.loads(pm(tmp_path, "info", "--json", "sim:1").stdout)
    assert str(streams) in json.dumps(runtime)


def test_an_option_collects_the_output_of_all_jobs_that_name_no_file(tmp_path: Path):
    jobs = [job("a", script="echo a"), job("b", script="echo b", stdout="b.out"), job("c", script="echo c; exit 1")]
    jobs.append(job("d", script="echo d; exit 1", output="files"))
    result = run_requests(tmp_path, jobs, options=("--nodes", "2", "--stream-output"))
    assert [pm(tmp_path, "logs", name).stdout for name in "abc"] == ["a\n", "b\n", "c\n"]
    assert (tmp_path / "b.out").read_text() == "b\n"
    assert stored(tmp_path, "b") == stored(tmp_path, "d") == b""
    assert (run_dir(tmp_path) / "out" / "d.out").read_text() == "d\n"
    assert f"the end of stdout of c in {run_dir(tmp_path) / 'streams'}:\n    c\n" in result.done.stdout


def test_every_attempt_has_output_of_its_own(tmp_path: Path):
    jobs = [streaming("a", "echo attempt ${attempt}; [ ${attempt} = 3 ]", retry={"max": 3, "delay": 0})]
    run_requests(tmp_path, jobs)
    assert pm(tmp_path, "logs", "a").stdout == "attempt 3\n"
    assert pm(tmp_path, "logs", "--attempt", "1", "a").stdout == "attempt 1\n"
    assert pm(tmp_path, "logs", "--attempt", "2", "a").stdout == "attempt 2\n"
    denied = pm(tmp_path, "logs", "--attempt", "4", "a")
    assert (denied.returncode, "has had 3 attempts; there is no attempt 4" in denied.stderr) == (1, True)
    pm(tmp_path, "logs", "--export", tmp_path / "last")
    assert {file.name: file.read_text() for file in (tmp_path / "last").iterdir()} == {"a.out": "attempt 3\n"}
    pm(tmp_path, "logs", "--export", tmp_path / "all", "--all-attempts")
    assert {file.name: file.read_text() for file in (tmp_path / "all").iterdir()} == {
        "a.out": "attempt 3\n",
        "a~1.out": "attempt 1\n",
        "a~2.out": "attempt 2\n",
    }
    pm(tmp_path, "logs", "--export", tmp_path / "one", "--attempt", "2", "a")
    assert {file.name: file.read_text() for file in (tmp_path / "one").iterdir()} == {"a~2.out": "attempt 2\n"}


def test_an_export_gives_no_earlier_attempt_the_name_of_a_last_one_that_wrote_nothing(tmp_path: Path):
    run_requests(tmp_path, [streaming("a", "[ ${attempt} = 2 ] || { echo wrong; exit 1; }", retry=1)])
    pm(tmp_path, "logs", "--export", tmp_path / "last")
    assert [*(tmp_path / "last").iterdir()] == []
    pm(tmp_path, "logs", "--export", tmp_path / "all", "--all-attempts")
    assert [file.name for file in (tmp_path / "all").iterdir()] == ["a~1.out"]
    denied = pm(tmp_path, "logs", "--all-attempts", "a")
    assert (denied.returncode, "--all-attempts goes with --export" in denied.stderr) == (2, True)


def test_output_in_files_has_no_earlier_attempts_to_show(tmp_path: Path):
    run_requests(tmp_path, [job("a", script="echo ${attempt}; [ ${attempt} = 2 ]", retry=1, stdout="o")])
    denied = pm(tmp_path, "logs", "--attempt", "1", "a")
    assert (
        denied.returncode,
        "files of earlier attempts are kept where their paths hold ${attempt}" in denied.stderr,
    ) == (1, True)
    assert pm(tmp_path, "logs", "--attempt", "2", "a").stdout == "2\n"


def test_an_export_can_be_limited_to_jobs_and_never_overwrites(tmp_path: Path):
    run_requests(tmp_path, [streaming("sim", "echo ${it}", iteration=12), streaming("other", "echo other")])
    pm(tmp_path, "logs", "--export", tmp_path / "some", "sim:1", "other")
    assert sorted(file.name for file in (tmp_path / "some").iterdir()) == ["other.out", "sim.1.out"]
    pm(tmp_path, "logs", "--export", tmp_path / "sims", "sim")
    assert len([*(tmp_path / "sims").iterdir()]) == 12
    denied = pm(tmp_path, "logs", "--export", tmp_path / "some")
    assert (denied.returncode, "is not empty; export to a new directory" in denied.stderr) == (1, True)
    assert "name a job, or export all output" in pm(tmp_path, "logs").stderr


def test_output_is_followed_while_the_job_runs(tmp_path: Path):
    service = Served(tmp_path, "--nodes", "1")
    try:
        service.submit(streaming("a", "echo first; until [ -e go ]; do sleep 0.01; done; echo second; printf end"))
        following = start("qcg-pm", "logs", "--follow", "a", "--path", tmp_path)
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        (tmp_path / "go").touch()
        out, _ = following.communicate(timeout=60)
        assert out == "second\nend"
    finally:
        service.end()


def writer_of(crashing: Crashing) -> int:
    """The pid of the process that writes the stream."""
    wait_for(lambda: [*(crashing.run_dir / "streams").glob("*.stream")], what="the stream")
    (path,) = (crashing.run_dir / "streams").glob("*.stream")
    return int(path.name.split(".")[-3])


PATIENT = "echo began ${it}; touch began.${it}; until [ -e release ]; do sleep 0.05; done; echo ended ${it}"


def test_the_output_of_jobs_is_complete_after_the_manager_was_killed(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [streaming("sim", PATIENT, iteration=3)])
    crashing = Crashing(tmp_path, requests, "--nodes", "2")
    crashing.start()
    wait_for(lambda: len([*tmp_path.glob("began.*")]) == 2, what="two running iterations")
    crashing.kill_manager()
    (tmp_path / "release").touch()
    wait_for(lambda: stored(tmp_path, "sim.1").endswith(b"ended 1\n"), what="output without a manager")
    assert crashing.finish().returncode == 0
    assert [stored(tmp_path, f"sim.{index}") for index in range(3)] == [
        b"began %d\nended %d\n" % (index, index) for index in range(3)
    ]


def test_output_before_and_after_the_death_of_the_agent_is_stored(tmp_path: Path):
    script = "echo began; touch began; until [ -e release ]; do sleep 0.05; done; echo without an agent; touch message"
    job = streaming("a", f"{script}; sleep 1000")
    crashing = Crashing(tmp_path, write_requests(tmp_path / "r.json", [job]), "--nodes", "1")
    crashing.start()
    wait_for((tmp_path / "began").exists, what="the job")
    writer = writer_of(crashing)
    crashing.kill_manager()  # otherwise another agent would be started, and would end the job
    crashing.kill_agent()
    (tmp_path / "release").touch()
    wait_for((tmp_path / "message").exists, what="the job that outlives its agent")
    wait_for(lambda: stored(tmp_path, "a") == b"began\nwithout an agent\n", what="its output")
    assert crashing.finish().returncode != 0
    wait_for(lambda: not is_alive(writer), what="the end of the writer")
    shown = pm(tmp_path, "logs", "a")
    assert shown.stdout == "began\nwithout an agent\n"


def test_lost_jobs_that_run_again_write_to_another_file(tmp_path: Path):
    script = "echo start; if [ ! -e began ]; then touch began; sleep 1000; fi; echo end"
    crashing = Crashing(
        tmp_path, write_requests(tmp_path / "r.json", [streaming("a", script)]), "--nodes", "1", "--on-lost", "rerun"
    )
    crashing.start()
    wait_for((tmp_path / "began").exists, what="the job")
    wait_for(lambda: stored(tmp_path, "a") == b"start\n", what="its output")
    crashing.kill_agent()
    assert crashing.wait() == 0
    assert pm(tmp_path, "logs", "a").stdout == "start\nend\n"
    assert len([*(crashing.run_dir / "streams").glob("*.stream")]) == 2


def test_a_run_continues_with_another_writer_when_one_is_killed(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [streaming("sim", PATIENT, iteration=4)])
    crashing = Crashing(tmp_path, requests, "--nodes", "2")
    crashing.start()
    wait_for(lambda: len([*tmp_path.glob("began.*")]) == 2, what="two running iterations")
    os.kill(writer_of(crashing), signal.SIGKILL)
    (tmp_path / "release").touch()
    assert crashing.wait() == 0
    # The output stored by the first writer, and the remaining output by the second one.
    assert [stored(tmp_path, f"sim.{index}")[-8:] for index in range(4)] == [
        b"ended %d\n" % index for index in range(4)
    ]


def test_a_file_and_a_stream_for_the_same_output_are_refused(tmp_path: Path):
    path = write_requests(tmp_path / "r.json", [streaming("a", "true", stdout="o")])
    message = run("qcg-pm", "validate", path).stderr
    assert 'execution.output: "stream" collects stdout and stderr, and excludes a file for "stdout"' in message
