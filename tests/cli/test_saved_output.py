"""Output of jobs without output files: saved when they fail, and shown by commands."""

from __future__ import annotations

import resource
import stat
import subprocess
from pathlib import Path

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.report.tail import leading_to
from tests.cli.conftest import Pm
from tests.support.pilot import job, run, run_requests
from tests.support.serving import Served
from tests.support.waiting import wait_for

TRACEBACK = "echo began; echo 'ValueError: no such mesh' >&2; exit 1"


def run_dir(wd: Path) -> Path:
    return next(wd.glob(".qcgpjm-service-*"))


def test_a_run_keeps_the_output_of_failed_jobs_and_shows_its_end(tmp_path: Path):
    done = run_requests(
        tmp_path,
        [
            job("bad", script=TRACEBACK),
            job("fine", script="echo fine; echo hm >&2"),
            job("its", script="echo no ${it} >&2; exit $((${it} % 2))", iteration=4),
            job("own", script=TRACEBACK, stdout="own.out"),
            job("a/b", script=TRACEBACK),
        ],
    ).done
    out = run_dir(tmp_path) / "out"
    files = {path.name: path.read_text() for path in out.iterdir()}
    assert files == {
        "bad.out": "began\n",
        "bad.err": "ValueError: no such mesh\n",
        "its.1.err": "no 1\n",
        "its.3.err": "no 3\n",
        "own.err": "ValueError: no such mesh\n",
        "a%2Fb.out": "began\n",
        "a%2Fb.err": "ValueError: no such mesh\n",
    }
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert f"bad FAILED: exit code 1; the end of {out}/bad.err:\n    ValueError: no such mesh\n" in done.stdout
    assert f"its:3 FAILED: exit code 1; the end of {out}/its.3.err:\n    no 3\n" in done.stdout

    def pm(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("qcg-pm", *arguments, "--path", tmp_path)

    assert pm("logs", "bad").stdout == "began\n"
    assert pm("logs", "--stderr", "bad").stdout == "ValueError: no such mesh\n"
    assert pm("logs", "--stderr", "its:3").stdout == "no 3\n"
    assert "its:3 has no output on its stdout; see: qcg-pm logs --stderr its:3\n" in pm("logs", "its:3").stderr
    assert pm("logs", "own").stdout == "began\n"
    assert "run it with --keep-output" in pm("logs", "fine").stderr
    some = pm("logs", "--stderr", "bad", "fine")
    assert some.returncode == 0
    assert some.stderr.startswith("1 of 2 have no output on stderr\nNo manager")
    none = pm("logs", "--stderr", "fine", "its:0")
    assert none.returncode == 1
    assert none.stderr.startswith("2 of 2 have no output on stderr\nError: job 'fine' has succeeded")
    end = f"exit code 1; the end of {out}/bad.err:\n    ValueError: no such mesh\n"
    assert end in pm("why", "bad").stdout


def test_a_run_keeps_the_output_of_all_jobs_on_demand(tmp_path: Path):
    jobs = [job("bad", script=TRACEBACK), job("its", script="echo ${it}", iteration=3)]
    run_requests(tmp_path, jobs, options=("--nodes", "2", "--keep-output"))
    out = run_dir(tmp_path) / "out"
    assert {path.name for path in out.iterdir()} == {"bad.out", "bad.err", "its.0.out", "its.1.out", "its.2.out"}
    assert run("qcg-pm", "logs", "its:2", "--path", tmp_path).stdout == "2\n"


def test_jobs_of_the_api_are_kept_too(pm: Pm, manager: LocalManager, wd: Path):
    manager.submit(Jobs().add(name="bad", script=TRACEBACK).add(name="fine", script="echo fine"))
    manager.wait4all()
    assert pm("logs", "--stderr", "bad").stdout == "ValueError: no such mesh\n"
    path = str(run_dir(wd) / "out/bad.err")
    assert manager.info("bad")["jobs"]["bad"]["data"]["runtime"]["stderr"] == path
    assert "stderr" not in manager.info("fine")["jobs"]["fine"]["data"]["runtime"]
    told = manager.why("bad")["jobs"]["bad"]["data"]
    assert (told["lastLines"], told["lastLinesOf"]) == (["ValueError: no such mesh"], path)


def test_the_output_of_a_canceled_job_is_kept(pm: Pm, manager: LocalManager, wd: Path):
    manager.submit(Jobs().add(name="slow", script="echo began; touch began; sleep 100"))
    wait_for((wd / "began").exists, what="the start of the job")
    manager.cancel("slow")
    manager.wait4("slow")
    assert pm("logs", "slow").stdout == "began\n"


def test_a_job_whose_output_is_captured_can_be_followed_to_its_end(pm: Pm, manager: LocalManager, wd: Path):
    manager.submit(Jobs().add(name="bad", script="until test -e go; do sleep 0.01; done; echo no; exit 1"))
    assert "its output is kept if it fails" in pm("logs", "bad", code=1).stderr
    (wd / "go").touch()
    assert pm("logs", "--follow", "bad").stdout == "no\n"


def test_more_jobs_than_the_soft_limit_of_open_files_allows_keep_their_output(tmp_path: Path):
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, given[1]))
    try:
        service = Served(tmp_path, "--nodes", "60")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, given)
    try:
        script = "touch began.${it}; until [ -e go ]; do sleep 0.1; done; ulimit -Sn; echo wrong >&2; exit 1"
        service.submit(job("many", script=script, iteration=60))
        wait_for(lambda: len([*tmp_path.glob("began.*")]) == 60, what="all of them to run at once")
        (tmp_path / "go").touch()
        service.wait("many", "FAILED")
        files = {path.name: path.read_text() for path in (service.run_dir / "out").iterdir()}
    finally:
        service.end()
    assert files == {
        f"many.{index}.{stream}": text for index in range(60) for stream, text in (("out", "96\n"), ("err", "wrong\n"))
    }


def test_the_saved_output_of_earlier_attempts_is_shown(tmp_path: Path):
    failing = "echo try ${attempt} >&2; exit 1"
    jobs = [
        job("y", script=failing, retry=1),
        job("its", script=failing, retry=1, iteration=2),
        job("ok", script="echo try ${attempt} >&2; [ ${attempt} = 2 ]", retry=1),
    ]
    run_requests(tmp_path, jobs)

    def shown(*arguments: str) -> str:
        return run("qcg-pm", "logs", "--stderr", *arguments, "--path", tmp_path).stdout

    assert [shown("--attempt", number, "y") for number in "12"] == ["try 1\n", "try 2\n"]
    assert shown("--attempt", "1", "its:1") == "try 1\n"
    assert shown("--attempt", "1", "ok") == "try 1\n"
    assert shown("--attempt", "1", "--follow", "y") == "try 1\n"
    out = run_dir(tmp_path) / "out"
    heads = [f"==> its:{index}: {out}/its.{index}.err <==\ntry 1\n" for index in range(2)]
    assert shown("--attempt", "1", "its:*") == "".join(heads)
    denied = run("qcg-pm", "logs", "--attempt", "1", "y", "--path", tmp_path)
    assert (denied.returncode, "nothing of the stdout of attempt 1 of job 'y' was saved" in denied.stderr) == (1, True)


def test_output_of_an_earlier_attempt_is_not_shown_for_one_that_was_not_started(tmp_path: Path):
    script = "echo old; cd ..; rm -r d; touch d; exit 1"
    jobs = [job("relax", script=script, wd="d", stdout="../relax.out", retry={"max": 1, "delay": 0})]
    done = run_requests(tmp_path, jobs).done
    why = run("qcg-pm", "why", "relax", "--path", tmp_path)
    assert (tmp_path / "relax.out").read_text() == "old\n"
    for shown in (done.stdout, why.stdout):
        assert "relax FAILED: The working directory" in shown
        assert "the end of" not in shown
        assert "old" not in shown


def test_a_sentence_before_the_last_lines_has_no_full_stop():
    assert leading_to("It was killed.", "a.err") == "It was killed; the end of a.err:"
    assert leading_to("exit code 1", "a.err") == "exit code 1; the end of a.err:"
