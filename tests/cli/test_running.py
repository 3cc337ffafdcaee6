"""Output and files of commands that run jobs."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qcg.pilotjob.cli.service_runner import repeated_file_notices
from qcg.pilotjob.common.logs import log_to, stop_logging
from qcg.pilotjob.common.options import Resumption
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.journal.metadata import FILE_REQUESTS_DONE, FILE_REQUESTS_TOTAL
from tests.support.pilot import COMMANDS, WAIT, Run, environment, job, run, run_requests, start, write_requests
from tests.support.pseudo_terminal import HIDE_CURSOR, PseudoTerminal, text_written

GATE = "until [ -e go ]; do sleep 0.02; done"
AFFINITY = "import os; print(*sorted(os.sched_getaffinity(0)), os.environ['QCG_PM_CPU_SET'])"


def test_a_file_alone_is_run_and_nodes_need_no_quotes(run_dir: Path):
    write_requests(run_dir / "requests", [job("a", script='echo "$QCG_PM_NODELIST"', numNodes=2, stdout="a.out")])
    done = run("qcg-pm", "requests", "--nodes", "n1:4,", "n2:4")
    assert done.returncode == 0, done.stderr
    assert (run_dir / "a.out").read_text() == "n1,n2\n"
    write_requests(run_dir / "endless", [job("a", "sleep", "1000")])
    service = run("qcg-pm-service", "--file-path", "endless", "--nodes", "n1:4,", "n2:4,", "n3:1", "--show-progress")
    assert "1 job was cut off" in service.stderr
    assert "3 nodes with 9 cores: n1, n2, n3" in (run_dir / "service.log").read_text()


def test_a_working_directory_that_is_created_is_named(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    arguments = ("qcg-pm", "run", requests, "--wd", tmp_path / "new" / "x", "--cores", "1")
    assert run(*arguments).stderr.splitlines() == [f"Created {tmp_path}/new/x, the working directory."]
    assert run(*arguments).stderr == ""


def test_cores_are_those_of_one_virtual_node_also_when_a_run_is_resumed(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", script="echo $QCG_PM_NODELIST", stdout="a", numCores=3)])
    assert run("qcg-pm", "run", requests, "--wd", tmp_path, "--cores", "3").returncode == 0
    assert (tmp_path / "a").read_text() == "n0\n"
    resumed = run("qcg-pm-service", "--resume", tmp_path, "--cores", "5")
    assert resumed.returncode == 0, resumed.stderr
    sizes = re.findall(r"\d+ nodes? with \d+ cores?", (tmp_path / "service.log").read_text())
    assert sizes == ["1 node with 3 cores", "1 node with 5 cores"]


def test_in_a_pipe_there_are_plain_lines_and_a_closing_table(tmp_path: Path):
    jobs = [job("good", script=GATE), job("bad", script="echo because >&2; exit 3", stderr="bad.err")]
    requests = write_requests(tmp_path / "r.json", jobs)
    lines: list[str] = []
    with start("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "4") as command:
        assert command.stdout is not None
        for line in command.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "1 of 2 jobs done, 1 running, 1 failed, 1 of 4 cores busy":
                (tmp_path / "go").touch()
    assert command.returncode == 1
    shown = "\n".join(lines)
    assert "\x1b" not in shown
    assert "FAILED bad: exit code 3" in lines
    assert re.search(r"SUCCEED +1", shown)
    assert re.search(r"FAILED +1", shown)
    assert "    because" in lines


def test_a_name_that_the_output_cannot_show_is_escaped(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("übel", "false")], WAIT)
    ascii_only = environment(PYTHONIOENCODING="ascii")
    for command, argument in (("qcg-pm", "run"), ("qcg-pm-service", "--show-progress")):
        file = [requests] if command == "qcg-pm" else ["--file-path", requests]
        done = run(command, argument, *file, "--wd", tmp_path, "--nodes", "1", env=ascii_only)
        assert done.returncode == 1
        assert r"\xfcbel" in done.stdout
        assert "Traceback" not in done.stderr


def test_on_a_terminal_there_is_a_live_line(tmp_path: Path):
    """With a bar, a rate and the time left, which are known a second after the first end."""
    jobs = [job("bad", "false"), job("equal", "sh", "-c", f"[ ${{it}} -lt 5 ] || {GATE}", iteration=7)]
    requests = write_requests(tmp_path / "r.json", jobs)
    counts = "1 of 2 jobs done, 5 of 7 iterations done, 1 running, 1 failed, 1 of 1 cores busy"
    live = rf"█+▓+░+  75 % {counts}, [0-9.]+ ends/(s|min), (about [0-9]|[0-9]+ .+ to [0-9]|less than 1 s).* left"
    line = [sys.executable, *COMMANDS["qcg-pm"], "run", str(requests), "--wd", str(tmp_path), "--nodes", "1"]
    with PseudoTerminal(line, (240, 24)) as terminal:
        terminal.wait_until(re.compile(live).search, "the live line")
        (tmp_path / "go").touch()
        assert terminal.wait_for_exit() == 1
        assert terminal.restored
        assert HIDE_CURSOR in terminal.written
        shown = text_written(terminal.written)
    assert "FAILED bad: exit code 1" in shown
    assert re.search(r"SUCCEED +1 +7", shown)
    assert "Traceback" not in shown


def test_show_progress_prints_every_start_and_end(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true"), job("it", "false", iteration=2)], WAIT)
    options = ("--wd", tmp_path, "--nodes", "4", "--show-progress", "--system-core", "--report-format", "json")
    done = run("qcg-pm-service", "--file-path", requests, *options)
    for told in ("executing job a ...", "job a finished: SUCCEED", "executing job it:1 ...", "job it finished: FAILED"):
        assert re.search(rf"^\d{{4}}-\S+ \S+ {re.escape(told)}$", done.stdout, re.MULTILINE), told
    report = Run(tmp_path, done).report
    assert "[0]" not in report["a"]["runtime"]["allocation"], "the first core is the manager's"


def test_with_a_system_core_there_is_one_core_less_to_give(tmp_path: Path):
    requests = [{"request": "resourcesInfo"}, [job("all", "true", numCores=4), job("most", "true", numCores=3)]]
    done = run_requests(tmp_path, *requests, options=("--nodes", "4", "--system-core"))
    assert done.states == {"all": "FAILED", "most": "SUCCEED"}
    info = done.replies[0]["data"]
    assert info == {"total_nodes": 1, "total_cores": 4, "used_cores": 1, "free_cores": 3}


def test_files_of_a_run_are_readable_by_their_owner_only(tmp_path: Path):
    script = f"find {tmp_path}/.qcgpjm* -printf '%m %f\\n' > modes; umask > umask"
    done = run_requests(tmp_path, [job("look", script=script), job("stdin", "cat", stdout="cat.out")])
    assert set(done.states.values()) == {"SUCCEED"}
    while_running = [line.split() for line in (tmp_path / "modes").read_text().splitlines()]
    assert len(while_running) > 5
    open_to_others = [(mode, name) for mode, name in while_running if int(mode, 8) & 0o077]
    assert open_to_others == []
    (run_directory,) = tmp_path.glob(".qcgpjm-service-*")
    assert stat.S_IMODE(run_directory.stat().st_mode) == 0o700
    for path in run_directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    own = subprocess.run(["bash", "-c", "umask"], capture_output=True, text=True, check=True).stdout
    assert (tmp_path / "umask").read_text() == own, "jobs have the user's own umask"
    assert (tmp_path / "cat.out").read_text() == "", "standard input is empty"


def test_links_point_to_the_newest_run_and_files_of_the_user_stay(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    for run_id in ("first", "second"):
        assert run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "1", "--id", run_id).returncode == 0
    for name in ("service.log", "jobs.report"):
        assert os.readlink(tmp_path / name) == f".qcgpjm-service-second/{name}"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("my own log")
    (other / "service.log").symlink_to("mine")
    (other / "jobs.report").write_text("my own report")
    assert run("qcg-pm", "run", requests, "--wd", other, "--nodes", "1").returncode == 0
    assert os.readlink(other / "service.log") == "mine"
    assert (other / "mine").read_text() == "my own log"
    assert (other / "jobs.report").read_text() == "my own report"
    elsewhere = tmp_path / "elsewhere.txt"
    run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "1", "--report-file", elsewhere)
    assert elsewhere.read_text().startswith("a (SUCCEED)")
    assert not (tmp_path / "jobs.report").exists(), "a link to an older run's would mislead"


def test_on_real_cores_jobs_are_bound_and_see_their_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    done = run_requests(
        tmp_path,
        [
            job("one", sys.executable, "-c", AFFINITY, stdout="one.out"),
            job("all", sys.executable, "-c", AFFINITY, numCores=cores, stdout="all.out"),
            job("threads", script="echo $OMP_NUM_THREADS", model="threads", numCores=cores, stdout="threads.out"),
            job("both", script='echo "$CUDA_VISIBLE_DEVICES"', nodeCrs={"gpu": 2}, stdout="both.out"),
            job("three", "true", nodeCrs={"gpu": 3}),
        ],
        options=(),
    )
    assert {name for name, state in done.states.items() if state != "SUCCEED"} == {"three"}
    affinity, *given = (tmp_path / "one.out").read_text().split()
    assert given == [affinity], "exactly the core that it was granted"
    assert done.report["one"]["runtime"]["allocation"].endswith(f"[{affinity}]")
    *bound, core_set = (tmp_path / "all.out").read_text().split()
    assert ",".join(bound) == core_set
    assert len(bound) == cores
    assert (tmp_path / "threads.out").read_text() == f"{cores}\n"
    assert (tmp_path / "both.out").read_text() == "4,7\n"


def test_with_the_schema_of_slurm_jobs_have_its_variables(tmp_path: Path):
    show = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('SLURM_')}))"
    options = ("--nodes", "2,2", "--envschema", "slurm")
    done = run_requests(tmp_path, [job("a", sys.executable, "-c", show, numNodes=2, stdout="a.out")], options=options)
    assert done.states == {"a": "SUCCEED"}
    seen = json.loads((tmp_path / "a.out").read_text())
    assert seen["SLURM_NODELIST"] == "n0,n1"
    assert seen["SLURM_NTASKS"] == "4"
    assert seen["SLURM_TASKS_PER_NODE"] == "2(x2)"


def test_a_log_that_cannot_be_written_is_one_error_without_a_traceback(capfd: pytest.CaptureFixture[str]):
    handler = log_to(Path("/dev/full"), "info")
    for number in range(3):
        logging.getLogger("qcg.pilotjob.test").info("line %d", number)
    stop_logging(handler)
    err = capfd.readouterr().err
    assert err.count("/dev/full cannot be written: No space left on device") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("given", "done", "said"),
    [
        ({"file_path": "/r.json"}, 0, []),
        ({"nodes": "4"}, 2, []),
        (
            {"file_path": "/r.json"},
            2,
            ["Of /r.json, 2 of 3 requests were run in this run before: continuing with the next one."],
        ),
        (
            {"file_path": "/r.json"},
            3,
            [
                "/r.json has been run in this run before, and is not run again: only jobs of it that have not ended"
                " continue. To run jobs again that have not succeeded, give --rerun failed; for other requests, give"
                " another file."
            ],
        ),
    ],
)
def test_a_resume_with_the_same_file_says_that_it_is_not_run_again(
    tmp_path: Path, given: dict[str, str], done: int, said: list[str]
):
    journal = Journal.create(tmp_path / "registry")
    try:
        journal.set_metadata(FILE_REQUESTS_DONE, done)
        journal.set_metadata(FILE_REQUESTS_TOTAL, 3)
        assert repeated_file_notices(Resumption(tmp_path, given), journal) == said
        assert repeated_file_notices(None, journal) == []
    finally:
        journal.close()
