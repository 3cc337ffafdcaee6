"""The commands on a running manager."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.commands.info import details
from qcg.pilotjob.cli.commands.wait import wait_for as wait_for_jobs
from tests.support.pilot import WAIT, job, start, write_requests
from tests.support.waiting import wait_for

Pm = Callable[..., Result]
Told = Callable[..., Any]

GATE = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture
def gate(wd: Path) -> Any:
    """Opens the gate for jobs that wait for it."""
    path = wd / "go"
    yield path.touch
    path.unlink(missing_ok=True)


# -- submit, wait -----------------------------------------------------------------------------------------------------


def test_submit_prints_the_name_of_the_job(pm: Pm, wd: Path):
    name = pm("submit", "-c", "2", "--", "bash", "-c", 'echo "$1 $QCG_PM_NPROCS"', "-c", "a  b").stdout.strip()
    assert re.fullmatch(r"bash-[0-9a-f]{6}", name)
    pm("wait", name)
    assert (wd / f"{name}.out").read_text() == "a  b 2\n"


def test_submit_has_all_the_options_of_a_job(pm: Pm, wd: Path, manager: LocalManager):
    pm("submit", "--name", "first", "--", "true")
    options = ["--name", "full", "-N", "1", "-c", "1-2", "--wd", "sub", "--stdout", "o", "--stderr", "e", "--wt", "1m"]
    options += ["--after", "first", "--iteration", "2", "--env", "A=x y", "--wait"]
    done = pm("submit", *options, "--", "bash", "-c", 'echo "$A $1"; echo no >&2', "-", "${it}")
    assert done.stdout.splitlines() == ["full", "1 SUCCEED (2 of 2 iterations succeeded)"]
    assert (wd / "sub/o").read_text() in ("x y 0\n", "x y 1\n")
    assert (wd / "sub/e").read_text() == "no\n"


def test_a_line_says_how_often_a_job_runs_again_when_it_starts_and_whether_it_is_held(pm: Pm, wd: Path):
    program = ("--", "bash", "-c", "[ ${attempt} = 3 ]")
    assert pm("submit", "--name", "again", "--retry", "2", "--wait", *program).stdout.splitlines()[1] == "1 SUCCEED"
    pm("submit", "--name", "once", "--retry", '{"max": 5, "on": ["timeout"]}', "--wait", *program, code=1)
    pm("submit", "--name", "held", "--hold", "--priority", "-3", "--", "true")
    shown = pm("info", "held").stdout
    assert "held since" in shown
    assert "priority: -3" in shown
    pm("release", "held")
    pm("wait", "held")


def test_iterations_of_a_line_write_to_files_of_their_own(pm: Pm, wd: Path):
    pm("submit", "--name", "many", "--iteration", "2", "--wait", "--", "echo", "${it}")
    assert [(wd / f"many.{index}.out").read_text() for index in (0, 1)] == ["0\n", "1\n"]


def test_a_job_works_where_it_was_submitted_from(pm: Pm, wd: Path, monkeypatch: pytest.MonkeyPatch):
    (wd / "below").mkdir()
    monkeypatch.chdir(wd / "below")
    pm("submit", "-p", str(wd), "--name", "here", "--wait", "--", "pwd")
    assert (wd / "below/here.out").read_text() == f"{wd / 'below'}\n"


def test_waiting_ends_with_1_when_a_job_did_not_succeed(pm: Pm):
    done = pm("submit", "--name", "bad", "--wait", "--", "false", code=1)
    assert done.stdout.splitlines() == ["bad", "bad FAILED: exit code 1", "1 FAILED"]
    pm("submit", "--name", "good", "--", "true")
    assert pm("wait", "good").stdout == "1 SUCCEED\n"
    told = pm("wait", "--all", code=1).stdout.splitlines()
    assert told == ["bad FAILED: exit code 1", "1 FAILED, 1 SUCCEED"]
    pm("wait", "b*", code=1)


def test_waiting_for_a_failed_job_mentions_the_why_command(pm: Pm):
    program = ["--", "bash", "-c", "echo no input >&2; exit 3"]
    done = pm("submit", "--name", "bad", "--wait", *program, code=1)
    assert done.stdout.splitlines()[1] == "bad FAILED: exit code 3; see: qcg-pm why bad"
    done = pm("submit", "--name", "its", "--iteration", "2", "--wait", *program, code=1)
    assert done.stdout.splitlines()[1].endswith("; see: qcg-pm why its")


def test_waiting_for_iterated_jobs_counts_iterations(pm: Pm):
    program = ["--", "bash", "-c", "exit $(($1 == 2))", "-", "${it}"]
    done = pm("submit", "--name", "its", "--iteration", "4", "--wait", *program, code=1)
    assert done.stdout.splitlines()[-1] == "1 FAILED (3 of 4 iterations succeeded)"
    pm("submit", "--name", "one", "--iteration", "1", "--wait", "--", "true")
    assert pm("wait", "one").stdout == "1 SUCCEED (1 of 1 iteration succeeded)\n"
    assert pm("wait", code=1).stdout.splitlines()[-1] == "1 FAILED, 1 SUCCEED (4 of 5 iterations succeeded)"


def test_waiting_lists_jobs_as_they_were_named_whichever_ended_first(
    manager: LocalManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(manager, "wait4", lambda names, timeout: {"b": "SUCCEED", "a": "SUCCEED"})
    assert wait_for_jobs(manager, ["a", "b", "a"], None, as_json=True) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["a", "b"]


def test_the_first_of_many_unsuccessful_jobs_are_explained(pm: Pm):
    pm("submit", "--name", "its", "--iteration", "22", "--", "false")
    lines = pm("wait", "its:*", code=1).stdout.splitlines()
    assert lines[0] == "its:0 FAILED: exit code 1"
    assert lines[20:] == ["… and 2 more that did not succeed; see: qcg-pm why NAME", "22 FAILED"]


def test_a_job_that_can_never_start_is_warned_about_when_it_is_submitted(pm: Pm):
    done = pm("submit", "--name", "wide", "-c", "99", "--", "true", code=1)
    assert done.stdout == "wide\n"
    assert done.stderr == "Warning: wide is FAILED: 99 cores requested, but only 2 exist\n"
    assert pm("submit", "--name", "fits", "--", "false").stderr == ""
    shown = json.loads(pm("submit", "--json", "--name", "broad", "-c", "99", "--", "true", code=1).stdout)
    assert shown == {"submitted": 1, "jobs": ["broad"], "failed": {"broad": "99 cores requested, but only 2 exist"}}
    waited = pm("submit", "--name", "wider", "-c", "100", "--wait", "--", "true", code=1)
    assert "wider FAILED: 100 cores requested, but only 2 exist" in waited.stdout


def test_waiting_for_held_jobs_says_how_to_release_them(pm: Pm):
    pm("submit", "--hold", "--name", "kept", "--", "true")
    pm("submit", "--name", "behind", "--after", "kept", "--", "true")
    for names in (["kept", "behind"], []):
        told = pm("wait", "-t", "0.1", *names, code=3).stderr.splitlines()
        assert told[0].startswith("kept: it is held since ")
        assert told[0].endswith("; release it with: qcg-pm release kept")
    assert pm("wait", "-t", "0.1", "behind", code=3).stderr.startswith("behind: it waits for 'kept', which is held\n")
    pm("release", "kept")
    assert pm("wait", "kept").stderr == ""


def test_waiting_ends_with_3_when_it_takes_too_long(pm: Pm, gate: Any):
    pm("submit", "--name", "slow", "--", "bash", "-c", GATE)
    done = pm("wait", "slow", "--timeout", "0.1", code=3)
    assert "not everything has ended within 0.1 s: 1 of 1 jobs has not ended: 'slow'" in done.stderr
    pm("wait", "-t", "0", code=3)
    gate()
    pm("wait", "slow", "--timeout", "60")


def test_wait_json_has_the_final_states(pm: Pm, pm_json: Told):
    pm("submit", "--name", "good", "--", "true")
    pm("submit", "--name", "its", "--iteration", "2", "--", "bash", "-c", "exit $1", "-", "${it}")
    states = pm_json("wait", "good", "its:0-1", "its", code=1)
    assert states == {"good": "SUCCEED", "its:0": "SUCCEED", "its:1": "FAILED", "its": "FAILED"}


def test_jobs_of_a_file_are_submitted(pm: Pm, wd: Path):
    (wd / "jobs.json").write_text(json.dumps([job("a", "true"), {"name": "b", "exec": "true", "after": "a"}]))
    assert pm("submit", "jobs.json", "--wait").stdout.splitlines() == ["a", "b", "2 SUCCEED"]


def test_only_the_submits_of_a_request_file_are_used(pm: Pm, pm_json: Told, wd: Path):
    write_requests(wd / "requests.json", [job("a", "true")], WAIT, [job("b", "true")])
    done = pm("submit", "requests.json")
    assert done.stdout.splitlines() == ["a", "b"]
    assert "request 2 of requests.json is no submit and is left out" in done.stderr
    pm("wait", "a", "b")
    assert pm_json("jobs")["length"] == 2


def test_jobs_come_from_the_standard_input_too(pm: Pm, pm_json: Told):
    pm("submit", "-", input=json.dumps(job("a", "true")))
    pm("wait", "a")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "give a FILE of jobs, or a program after --"),
        (
            ["none.json"],
            2,
            "none.json cannot be read: No such file or directory; to submit a program, put -- before it",
        ),
        (["broken.json"], 2, "broken.json is not valid JSON"),
        (["empty.json"], 2, "empty.json holds no jobs"),
        (["digits.json"], 2, "digits.json holds a number with too many digits"),
        (["broken.json", "--", "true"], 2, "not both"),
        (["broken.json", "-c", "2"], 2, "qcg-pm submit … -- broken.json"),
        (["-c", "x", "--", "true"], 2, "--cores 'x' is not a number"),
        (["--env", "x", "--", "true"], 2, "write NAME=VALUE"),
        (["--wt", "soon", "--", "true"], 2, "'--wt': \"soon\" is not a wall time; write it as 1h30m"),
        (["--wt", "0", "--", "true"], 2, "'--wt': the wall time \"0\" must be longer than zero"),
        (["--after", "nobody", "--", "true"], 1, "there is no job 'nobody'"),
        (["--retry", "often", "--", "true"], 2, "'--retry': retry: \"often\" is neither a number nor a JSON object"),
        (["broken.json", "--hold"], 2, "qcg-pm submit … -- broken.json"),
        (["--name", "a b", "--", "true"], 1, "a b"),
    ],
)
def test_an_invalid_submission_is_an_error_message(arguments: list[str], code: int, sentence: str, pm: Pm, wd: Path):
    (wd / "broken.json").write_text("[{")
    (wd / "empty.json").write_text("[]")
    (wd / "digits.json").write_text(f'[{{"name": "a", "exec": "true", "numCores": {"9" * 5000}}}]')
    assert sentence in pm("submit", *arguments, code=code).stderr


# -- looking ----------------------------------------------------------------------------------------------------------


def test_the_status_counts_jobs_and_cores(pm: Pm, pm_json: Told, wd: Path, manager: LocalManager, gate: Any):
    pm("submit", "--name", "its", "--iteration", "5", "--", "bash", "-c", GATE)
    gate()
    pm("wait", "its")
    lines = pm("status").stdout.splitlines()
    assert re.fullmatch(rf"Manager \S+ on \S+, since [-\d]+ [\d:]+, in {wd}", lines[0])
    assert lines[1] == "0 of 2 cores on 1 node in use"
    assert [line.split() for line in lines[3:]] == [
        ["total", "waiting", "running", "succeeded", "failed", "cancelled", "omitted"],
        ["jobs", "1", "0", "0", "1", "0", "0", "0"],
        ["iterations", "5", "0", "0", "5", "0", "0", "0"],
    ]
    assert pm_json("status")["IterationStats"]["FinishedIterations"] == 5


def test_the_status_does_not_count_cancelled_and_omitted_jobs_as_failed(pm: Pm):
    pm("submit", "--name", "bad", "--", "false")
    pm("submit", "--name", "after-bad", "--after", "bad", "--", "true")
    pm("submit", "--name", "long", "--", "sleep", "100")
    pm("cancel", "long")
    pm("wait", code=1)
    assert pm("status").stdout.splitlines()[4].split() == ["jobs", "3", "0", "0", "0", "1", "1", "1"]


def test_jobs_are_listed_by_pattern_iteration_and_state(pm: Pm, pm_json: Told):
    assert pm("jobs").stdout == "There are no jobs.\n"
    pm("submit", "--name", "bad", "--wait", "--", "false", code=1)
    pm("submit", "--name", "its", "--iteration", "3", "--wait", "--", "true")
    assert pm("jobs").stdout.splitlines() == [
        "name  state    message",
        "bad   FAILED   exit code 1",
        "its   SUCCEED",
    ]
    assert pm("jobs", "its:1-2", "b*").stdout.splitlines() == [
        "name   state    message",
        "its:1  SUCCEED",
        "its:2  SUCCEED",
        "bad    FAILED   exit code 1",
    ]
    assert pm_json("jobs", "--state", "failed") == {
        "length": 1,
        "jobs": {
            "bad": {
                "state": "FAILED",
                "status": "FAILED",
                "message": "exit code 1",
                "messages": "exit code 1",
            }
        },
    }
    for word in ("Finished", "succeeded", "SUCCEED"):
        assert "its" in pm("jobs", "-s", word).stdout
    for word in ("QUEUED", "waiting", "Running", "cancelled", "omitted"):
        assert pm("jobs", "-s", word).stdout == "There are no such jobs.\n"
    done = pm("jobs", "its", "nobody", code=1)
    assert done.stdout.splitlines()[1] == "its   SUCCEED"
    assert done.stderr == "Error: there is no job 'nobody'\n"
    assert "no job matches 'x*'" in pm("jobs", "x*", code=1).stderr


def test_info_shows_details_of_jobs(pm: Pm, pm_json: Told, wd: Path):
    pm("submit", "--name", "its", "--iteration", "2", "--wait", "--", "bash", "-c", "exit $1", "-", "${it}", code=1)
    lines = pm("info", "its").stdout.splitlines()
    assert lines[0] == "its (FAILED)"
    assert "    iterations: start 0, stop 2, total 2, finished 2, failed 1" in lines
    assert "    messages: 1 of 2 iterations failed" in lines
    assert pm("jobs", "its").stdout.splitlines()[1].split(maxsplit=2)[2] == "1 of 2 iterations failed"
    assert "    its:1 (FAILED)" not in lines
    assert "    its:1 (FAILED)" in pm("info", "-i", "its").stdout.splitlines()
    info = pm_json("info", "its:1")["its:1"]
    assert info["runtime"]["exit_code"] == 1
    assert info["runtime"]["stdout"] == str(wd / "its.1.out")
    assert "there is no job 'x'" in pm("info", "x", code=1).stderr


def test_info_shows_what_a_waiting_job_asks_for_after_a_change(pm: Pm, pm_json: Told, manager: LocalManager):
    retry = '{"on": {"exit": 2, "lost": 1}, "exit_codes": [3, "5-7"]}'
    pm("submit", "--name", "first", "--hold", "--", "true")
    pm("submit", "--name", "g", "--after", "first", "--retry", retry, "--wt", "1h", "--", "true")
    pm("set", "g", "--cores", "1-2", "--mem", "2GB")
    assert pm("info", "g").stdout.splitlines()[2:] == [
        "    resources: cores 1-2, mem 2048MB, wt 3600s",
        "    dependencies: after first",
        '    retry: exit 2, lost 1; exit_codes=[3,"5-7"]',
    ]
    info = pm_json("info", "g")["g"]
    cores = {"min": 1, "max": 2}
    assert info["resources"] == {"num_cores": cores, "numCores": cores, "mem": "2048MB", "wt": "3600s"}
    assert info["dependencies"] == {"after": ["first"]}
    assert info["retry"] == {"on": {"exit": 2, "lost": 1}, "exit_codes": [3, "5-7"]}
    parsed = manager.info_parsed(["first", "g"])
    assert parsed["g"].resources == {"numCores": cores, "mem": "2048MB", "wt": "3600s"}
    assert (parsed["g"].dependencies, parsed["g"].retry) == (info["dependencies"], info["retry"])
    held_since = parsed["first"].held_since
    assert held_since is not None
    assert parsed["g"].held_since is None
    assert held_since.timestamp() == pm_json("info", "first")["first"]["held_since"]


def test_info_shows_what_each_attempt_used(pm: Pm):
    pm("submit", "--name", "again", "--retry", "1", "--wait", "--", "bash", "-c", "exit 3", code=1)
    lines = pm("info", "again").stdout.splitlines()
    first = lines.index("    attempt 1: exit code 3; on n1[0]")
    names = ["cpu_time", "max_memory", "storage", "page_faults"]
    assert [line.split(":")[0] for line in lines[first + 1 : first + 5]] == [f"        {name}" for name in names]
    assert [line.split(":")[0] for line in lines if line[4:].split(":")[0] in names] == [
        f"    {name}" for name in names
    ]


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"numCores": {"exact": 4}, "numNodes": {"min": 2}}, "cores 4, nodes 2-"),
        ({"numCores": {"min": 2, "scheduler": {"name": "maximum-iters"}}}, "cores 2- (maximum-iters)"),
        ({"nodeCrs": {"gpu": 0.5, "mem": 100}, "named": {"license": 1}}, "gpus 0.5, mem 100MB, license 1"),
    ],
)
def test_resources_are_shown_in_the_words_of_options(resources: dict[str, Any], text: str):
    shown = details({"jobName": "a", "status": "QUEUED", "history": "", "resources": resources})
    assert shown == ["a (QUEUED)", f"    resources: {text}"]


def test_failures_within_a_sweep_are_listed_while_it_runs(pm: Pm, pm_json: Told, gate: Any):
    script = f"[ $1 = 0 ] || exit 7; {GATE}"
    pm("submit", "--name", "its", "--iteration", "3", "--", "bash", "-c", script, "-", "${it}")
    so_far = "2 of 3 iterations have failed so far"
    wait_for(lambda: so_far in pm("jobs").stdout, what="two failures")
    assert pm("jobs", "its").stdout.splitlines()[1].split(maxsplit=2) == ["its", "EXECUTING", so_far]
    assert pm_json("info", "its")["its"]["messages"] == so_far
    listed = [line.split(maxsplit=2) for line in pm("jobs", "its:*").stdout.splitlines()[1:]]
    assert listed == [["its:0", "EXECUTING"], ["its:1", "FAILED", "exit code 7"], ["its:2", "FAILED", "exit code 7"]]
    gate()
    pm("wait", "its", code=1)
    assert pm("jobs", "its").stdout.splitlines()[1].split(maxsplit=2)[2] == "2 of 3 iterations failed"


def test_resources_are_counted(pm: Pm, pm_json: Told):
    assert pm("resources").stdout == "nodes  cores  used  free\n    1      2     0     2\n"
    assert pm_json("resources") == {"total_nodes": 1, "total_cores": 2, "used_cores": 0, "free_cores": 2}


def test_why_says_what_jobs_wait_for_and_why_they_failed(pm: Pm, pm_json: Told, wd: Path, gate: Any):
    pm("submit", "--name", "first", "-c", "2", "--", "bash", "-c", f"{GATE}; echo input.dat is missing >&2; exit 3")
    pm("submit", "--name", "second", "--after", "first", "--", "true")
    pm("submit", "--name", "third", "--", "true")
    assert re.fullmatch(r"second QUEUED: it waits for 'first', which is \w+\n", pm("why", "second").stdout)
    assert pm_json("why", "third")["third"]["wanted"] == {"cores": {"min": 1, "max": 1}}
    gate()
    pm("wait", "--all", code=1)
    assert pm("why", "*").stdout.splitlines() == [
        f"first FAILED: exit code 3; the end of {wd / 'first.err'}:",
        "    input.dat is missing",
        "second OMITTED: it was never started: it waits for 'first', which is FAILED",
        "third SUCCEED: it has succeeded",
    ]
    assert "there is no job 'x'" in pm("why", "x", code=1).stderr


# -- logs -------------------------------------------------------------------------------------------------------------


def test_logs_show_the_output_of_jobs(pm: Pm, wd: Path):
    pm("submit", "--name", "talks", "--wait", "--", "bash", "-c", "echo 1; echo 2; echo 3; echo no >&2")
    assert pm("logs", "talks").stdout == "1\n2\n3\n"
    assert pm("logs", "talks", "-n", "2").stdout == "2\n3\n"
    assert pm("logs", "talks", "--stderr").stdout == "no\n"
    pm("submit", "--name", "its", "--iteration", "2", "--wait", "--", "echo", "${it}")
    shown = pm("logs", "its:0-1").stdout.splitlines()
    assert shown == [f"==> its:0: {wd}/its.0.out <==", "0", f"==> its:1: {wd}/its.1.out <==", "1"]
    assert "such as its:0" in pm("logs", "its", code=1).stderr
    assert "there is no job 'x'" in pm("logs", "x", code=1).stderr


def test_following_begins_before_the_job_does_and_ends_with_it(pm: Pm, manager: LocalManager, wd: Path):
    script = "for i in 1 2 3; do echo $i; sleep 0.15; done"
    manager.submit(
        Jobs()
        .add(name="first", script="sleep 0.3")
        .add(name="talks", script=script, stdout="talks.out", after="first")
        .add(name="mute", exec="true")
    )
    assert pm("logs", "-f", "talks").stdout == "1\n2\n3\n"
    assert pm("logs", "-f", "talks", "-n", "1").stdout == "3\n"
    assert "its output was not kept" in pm("logs", "-f", "mute", code=1).stderr
    assert "only one job can be followed" in pm("logs", "-f", "*", code=2).stderr


# -- ending -----------------------------------------------------------------------------------------------------------


def test_patterns_cancel_only_jobs_that_have_not_ended(pm: Pm, pm_json: Told):
    pm("submit", "--name", "over", "--wait", "--", "true")
    pm("submit", "--name", "one", "--", "sleep", "100")
    pm("submit", "--name", "its", "--iteration", "4", "-c", "2", "--", "sleep", "100")
    assert pm("cancel", "its:1-2").stdout == "2 canceled\n"
    assert pm_json("cancel", "*") == {"canceled": 2}
    assert pm_json("wait", "one", "its", "over", code=1) == {"one": "CANCELED", "its": "CANCELED", "over": "SUCCEED"}
    assert "'over' is already SUCCEED" in pm("cancel", "over", code=1).stderr
    assert "all have ended" in pm("cancel", "o*", code=1).stderr


def test_patterns_remove_only_jobs_that_have_ended(pm: Pm, pm_json: Told):
    pm("submit", "--name", "over", "--wait", "--", "true")
    pm("submit", "--name", "open", "--", "sleep", "100")
    assert "only a job that has ended can be removed" in pm("remove", "open", code=1).stderr
    assert pm("remove", "o*").stdout == "1 removed\n"
    assert list(pm_json("jobs")["jobs"]) == ["open"]
    assert "none has ended" in pm("remove", "o*", code=1).stderr


def test_an_iteration_cannot_be_removed_but_its_job(pm: Pm):
    pm("submit", "--name", "its", "--iteration", "2", "--wait", "--", "true")
    assert pm("remove", "its:1", code=1).stderr == "Error: an iteration cannot be removed; remove 'its'\n"
    assert "has no iteration '7'" in pm("remove", "its:7", code=1).stderr
    pm("remove", "its")


def test_an_unknown_name_is_an_error_with_a_similar_name(pm: Pm):
    pm("submit", "--name", "simulate", "--wait", "--", "true")
    for command in ("jobs", "info", "why", "logs", "wait", "cancel", "remove", "hold", "release", "set --priority 1"):
        done = pm(*command.split(), "simulat", code=1)
        assert "there is no job 'simulat'; did you mean 'simulate'?" in done.stderr, command
    assert pm("jobs", "other", code=1).stderr == "Error: there is no job 'other'\n"


def test_logs_reports_a_job_that_wrote_only_to_stderr(pm: Pm):
    pm("submit", "--name", "fail", "--wait", "--", "bash", "-c", "echo no >&2; exit 1", code=1)
    done = pm("logs", "fail")
    assert (done.stdout, done.stderr) == (
        "",
        "fail has no output on its stdout; see: qcg-pm logs --stderr fail\n",
    )


def test_logs_reports_a_job_without_output(pm: Pm):
    pm("submit", "--name", "mute", "--wait", "--", "true")
    pm("submit", "--name", "misspelt", "--wait", "--", "./prgram", code=1)
    for options in ([], ["--follow"]):
        done = pm("logs", *options, "mute")
        assert (done.stdout, done.stderr) == ("", "mute has no output on its stdout\n")
        done = pm("logs", *options, "--stderr", "misspelt")
        told = "misspelt has no output on its stderr; see: qcg-pm why misspelt\n"
        assert (done.stdout, done.stderr) == ("", told)


def test_logs_of_several_jobs_counts_those_without_output(pm: Pm):
    script = "[ $1 != 2 ] || echo wrong >&2"
    pm("submit", "--name", "many", "--iteration", "4", "--wait", "--", "bash", "-c", script, "-", "${it}")
    done = pm("logs", "--stderr", "many:*")
    assert re.fullmatch(r"==> many:2: .*/many\.2\.err <==\nwrong\n", done.stdout)
    assert done.stderr == "3 of 4 have no output on stderr\n"
    done = pm("logs", "many:0", "many:1", "nope", code=1)
    assert done.stdout == ""
    assert "2 of 3 have no output on stdout\n" in done.stderr
    assert "Error: there is no job 'nope'" in done.stderr


def test_logs_can_show_zero_lines(pm: Pm):
    pm("submit", "--name", "talks", "--wait", "--", "echo", "1")
    done = pm("logs", "--lines", "0", "talks")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_reader_that_closes_the_pipe_gets_no_error(pm: Pm, manager: LocalManager, wd: Path):
    manager.submit(Jobs().add(name="talks", script="seq 100000", stdout="talks.out"))
    manager.wait4("talks")
    with start("qcg-pm", "logs", "talks") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_jobs_are_shown_page_by_page(pm: Pm, pm_json: Callable[..., Any], manager: LocalManager):
    manager.submit(Jobs().add(name="page0", exec="true"))
    manager.submit(Jobs().add(name="page1", exec="false"))
    manager.submit(Jobs().add(name="other", exec="true"))
    manager.wait4(["page0", "page1", "other"])
    first = pm("jobs", "--limit", "2")
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["name", "page0", "page1"]
    assert first.stderr == "These are 2 jobs. For more: --after page1, --limit N, or --all\n"
    assert pm("jobs", "--limit", "2", "--after", "page1").stdout.splitlines() == ["name   state", "other  SUCCEED"]
    assert len(pm("jobs", "--all").stdout.splitlines()) == 4
    assert pm("jobs", "page*", "--limit", "1").stdout.splitlines() == ["name   state", "page0  SUCCEED"]
    page = pm_json("jobs", "--limit", "1")
    assert (page["length"], list(page["jobs"]), page["more"]) == (1, ["page0"], True)
    assert "more" not in pm_json("jobs")
    assert list(pm_json("jobs", "other", "page0", "--limit", "1")["jobs"]) == ["other"]
    assert 'there is no job "nobody"' in pm("jobs", "--after", "nobody", code=1).stderr
    assert "no job matches 'none*'" in pm("jobs", "none*", "--state", "failed", code=1).stderr
