"""`qcg-pm-client PROGRAM.py`: a program together with a manager."""

from __future__ import annotations

import ast
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.samples import VERSION_02, VERSION_03
from tests.support.pilot import environment, run, start
from tests.support.waiting import wait_for

CONNECT = "from qcg.pilotjob.api.manager import Manager\nfrom qcg.pilotjob.api.job import Jobs\nm = Manager()\n"


def client(wd: Path, program: str, *arguments: str, options: tuple[str, ...] = (), **more: Any) -> Any:
    path = wd / "program.py"
    path.write_text(program)
    return run("qcg-pm-client", *options, path, *arguments, cwd=wd, **more)


def states(wd: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\S+) \((\w+)\)$", (wd / "jobs.report").read_text(), re.MULTILINE))


@pytest.mark.parametrize("program", [VERSION_02, VERSION_03], ids=["0.2", "0.3"])
def test_the_example_programs_of_the_documents_run_unchanged(program: str, tmp_path: Path):
    done = client(tmp_path, program, options=("--nodes", "2"))
    assert (done.returncode, done.stderr) == (0, "")
    told = dict(re.findall(r"^([a-z ]+):\n(\{.*\})$", done.stdout, re.MULTILINE))
    assert ast.literal_eval(told["available resources"])["totalCores"] == 2
    assert set(ast.literal_eval(told["submited jobs"])) == {"host", "env"}
    details = ast.literal_eval(told["jobs details"])["jobs"]
    assert {name: entry["data"]["status"] for name, entry in details.items()} == states(tmp_path)
    assert states(tmp_path)["env"] == "SUCCEED"
    assert "QCG_PM_NPROCS=2\n" in (tmp_path / "env.stdout").read_text()
    assert (tmp_path / "host.stdout").exists()


def test_the_program_holds_no_core_so_that_one_is_enough(tmp_path: Path):
    program = CONNECT + "print(m.wait4(m.submit(Jobs().add(name='a', exec='true'))), m.resources()['total_cores'])"
    done = client(tmp_path, program, options=("--nodes", "1"))
    assert done.stdout == "{'a': 'SUCCEED'} 1\n", done.stderr


def test_arguments_and_input_reach_the_program_and_its_output_and_exit_code_come_back(tmp_path: Path):
    program = "import sys\nprint(sys.argv[1:])\nprint('no', file=sys.stderr)\nsys.exit(7)"
    done = client(tmp_path, program, "--nodes", "x y", "-h")
    assert (done.returncode, done.stdout, done.stderr) == (7, "['--nodes', 'x y', '-h']\n", "no\n")


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 15)", "raise KeyboardInterrupt"])
def test_a_program_ended_by_a_signal_gives_the_exit_code_of_a_shell(how: str, tmp_path: Path):
    done = client(tmp_path, f"import os\n{how}")
    assert done.returncode == (143 if "kill" in how else 130)


def test_jobs_that_the_program_left_behind_are_counted_and_can_be_continued(tmp_path: Path):
    jobs = "Jobs().add(name='a', exec='sleep', args=['100'], iteration=5).add(name='b', exec='true', after='a')"
    program = f"{CONNECT}m.submit({jobs})"
    done = client(tmp_path, program, options=("--nodes", "2"))
    assert done.returncode == 0
    (run_dir,) = tmp_path.glob(".qcgpjm-service-*")
    go_on = f"Continue with: qcg-pm run --resume {run_dir}"
    assert done.stderr == f"2 jobs are left, because the program has ended. {go_on}\n"
    assert not {"a", "b"} & states(tmp_path).keys()


def test_a_program_may_end_the_manager_itself(tmp_path: Path):
    done = client(tmp_path, CONNECT + "m.finish()\nprint('over')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def test_commands_of_the_program_find_the_manager_before_any_other(tmp_path: Path):
    program = (
        "import subprocess, sys\n"
        "line = [sys.executable, '-c', 'from qcg.pilotjob.cli.main import main; main()']\n"
        "subprocess.run([*line, 'submit', '--name', 'a', '--wait', '--', 'true'], check=True)"
    )
    elsewhere = environment(QCG_PJM_DIR="/nowhere", QCG_PJM_ADDRESS="nowhere")
    done = client(tmp_path, program, options=("--wd", "sub"), env=elsewhere)
    assert done.stdout == "a\n1 SUCCEED\n", done.stderr
    assert states(tmp_path / "sub") == {"a": "SUCCEED"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_decides_what_a_signal_means_and_the_jobs_end_after_it(number: int, tmp_path: Path):
    (tmp_path / "program.py").write_text(
        CONNECT + "import signal, sys, threading\n"
        "m.submit(Jobs().add(name='a', exec='sleep', args=['100']))\n"
        "told = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.set())\n"
        "signal.signal(signal.SIGINT, lambda *_: told.set())\n"
        "print('ready', flush=True)\n"
        "while not told.wait(0.05): pass\n"
        "sys.exit(5)"
    )
    with start("qcg-pm-client", "program.py", cwd=tmp_path, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if number == signal.SIGINT:
            # A terminal signals all processes in the foreground.
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        assert process.wait(60) == 5
        assert process.stderr is not None
        assert "1 job is left, because the program has ended." in process.stderr.read()
    assert states(tmp_path) == {}, "the job is QUEUED again"


def test_a_manager_that_was_killed_does_not_change_how_the_program_ends(tmp_path: Path):
    program = (
        CONNECT + "import json, os, pathlib\n"
        "m.wait4(m.submit(Jobs().add(name='a', exec='true')))  # so that there is an agent\n"
        "os.kill(json.loads(pathlib.Path(os.environ['QCG_PM_CONTACT']).read_text())['pid'], 9)\n"
        "os._exit(4)  # at once: the manager is not gone yet"
    )
    done = client(tmp_path, program, options=("--agent-linger", "1", "--id", "x"))
    assert done.returncode == 4
    assert done.stderr.startswith("the manager was killed (SIGKILL) while the program ran")
    assert f"`qcg-pm run --resume {tmp_path / '.qcgpjm-service-x'}`" in done.stderr
    wait_for(lambda: not list(tmp_path.glob(".qcgpjm-service-*/agent-local.json")), what="the agent to end")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.py",), "'none.py' does not exist"),
        ((), "Missing argument 'PROGRAM'"),
        (("--nodes", "zero", "there.py"), "zero"),
        (("--id", "a/b", "there.py"), "leave out the '/'"),
    ],
)
def test_a_run_that_cannot_start_ends_with_2_and_a_message(arguments: tuple[str, ...], sentence: str, tmp_path: Path):
    (tmp_path / "there.py").write_text("print('never')")
    done = run("qcg-pm-client", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
