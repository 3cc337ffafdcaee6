"""From a description and a grant to a command, an environment and files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from qcg.pilotjob.cluster.slurm.environment import SCHEMA, compress
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.iteration import RowError, RowFile
from qcg.pilotjob.description.model import Execution, Iteration, JobDescription
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.launch.binding import Layout, binding
from qcg.pilotjob.launch.compose import command_line, compose, directory_of, program_name, stream_paths
from qcg.pilotjob.launch.environment import job_environment
from qcg.pilotjob.launch.setup import script_command, wrapped
from qcg.pilotjob.launch.site import Site

SITE = Site(root_wd="/data/here", instance="abc")
ONE = Grant((NodePart("n1", (3,)),))
TWO = Grant((NodePart("n1", (0, 1)), NodePart("n2", (4, 5, 6))))


def launch(
    grant: Grant = ONE, site: Site = SITE, position: int = -1, more: dict[str, Any] | None = None, **execution: Any
) -> Launch:
    description = JobDescription("job", Execution(**{"exec": "prog", **execution}), **(more or {}))
    return compose(description, Attempt(Job(7, "job", b"", 0.0), position, 0, grant, 0.0), site)


def test_a_job_sees_variables_about_its_grant():
    assert job_environment(TWO, None, "7.0", SITE, None) == {
        "QCG_PM_NNODES": "2",
        "QCG_PM_NODELIST": "n1,n2",
        "QCG_PM_NPROCS": "5",
        "QCG_PM_NTASKS": "5",
        "QCG_PM_STEP_ID": "abc.7.0",
        "QCG_PM_TASKS_PER_NODE": "2,3",
        "QCG_PM_CPU_SET": "0,1",
        "OMPI_MCA_orte_top_session_dir": "/dev/shm/qcg-pm.abc.7.0",
    }
    assert launch(site=replace(SITE, zmq_address="tcp://a:1")).env["QCG_PM_ZMQ_ADDRESS"] == "tcp://a:1"


def test_a_job_sees_just_its_gpus():
    grant = Grant((NodePart("n1", (0,), ("2", "GPU-x")),))
    assert launch(grant).env["CUDA_VISIBLE_DEVICES"] == "2,GPU-x"
    assert "CUDA_VISIBLE_DEVICES" not in launch().env


def test_the_slurm_schema_has_the_variables_of_a_slurm_job():
    slurm = replace(SITE, schema=SCHEMA, files="/run/files")
    found = launch(TWO, slurm).env
    assert {name: value for name, value in found.items() if name.startswith("SLURM")} == {
        "SLURM_NNODES": "2",
        "SLURM_NODELIST": "n1,n2",
        "SLURM_NPROCS": "5",
        "SLURM_NTASKS": "5",
        "SLURM_JOB_NODELIST": "n1,n2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_CPUS_PER_NODE": "2,3",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_STEP_NODELIST": "n1,n2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_NTASKS_PER_NODE": "3",
        "SLURM_STEP_TASKS_PER_NODE": "2,3",
        "SLURM_TASKS_PER_NODE": "2,3",
        "SLURM_HOSTFILE": "/run/files/7.0/machines",
        "SLURM_OVERLAP": "1",
    }
    found = launch(Grant((NodePart("n1", (0, 1)), NodePart("n2", (0, 1)))), slurm).env
    assert found["SLURM_NTASKS_PER_NODE"] == "2"
    assert found["SLURM_TASKS_PER_NODE"] == "2(x2)"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([4], "4"), ([4, 4], "4(x2)"), ([4, 4, 2], "4(x2),2"), ([1, 2, 1], "1,2,1"), ([2, 2, 2, 1, 1], "2(x3),1(x2)")],
)
def test_numbers_per_node_are_written_as_slurm_does(numbers: list[int], text: str):
    assert compress(numbers) == text


def test_a_plain_launch_starts_the_program_itself():
    made = launch(args=("a b", "'", "$x"), stdout="out/o", env={"X": "1"})
    assert made.argv == ["prog", "a b", "'", "$x"]
    assert (made.wd, made.stdin, made.stdout, made.stderr) == ("/data/here", None, "out/o", None)
    assert made.env["X"] == "1"
    assert not made.setup
    assert made.cores is None, "attempts are not bound to virtual cores"
    assert made.id == "7.0"
    assert made.grant == [("n1", (3,), ())]


def test_jobs_are_bound_to_real_cores():
    assert launch(TWO, replace(SITE, bindings={"n1": {0: 4, 1: 5}})).cores == (4, 5)


def test_the_cpu_set_has_the_cpus_of_the_system_where_they_are_known():
    bound = replace(SITE, bindings={"n1": {0: 4, 1: 5}})
    assert launch(TWO, bound).env["QCG_PM_CPU_SET"] == "4,5"
    assert launch(TWO).env["QCG_PM_CPU_SET"] == "0,1"


def test_gpus_have_the_names_that_programs_know_them_by():
    grant = Grant((NodePart("n1", (0,), ("2", "3")),))
    site = replace(SITE, visible_gpus={"n1": {"1": "0", "2": "1", "3": "2"}})
    environment = job_environment(grant, None, "1.0", site, None)
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["QCG_PM_GPUS"]) == ("1,2", "2,3")
    assert job_environment(grant, None, "1.0", SITE, None)["CUDA_VISIBLE_DEVICES"] == "2,3"


WITH_THREADS = [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("ids", "usable", "machine", "layout", "cpus"),
    [
        ((0, 1), [0, 2, 1, 3], [[0], [2], [1], [3]], Layout(4), {0: 0, 1: 2}),
        # Slurm counts threads, and so does the machine; in the second case the agent is confined.
        ((2, 3), [0, 4, 1, 5, 2, 6, 3, 7], WITH_THREADS, Layout(4, 2), {2: 1, 3: 5}),
        ((2, 3), [1, 5], WITH_THREADS, Layout(4, 2), {2: 1, 3: 5}),
        # Slurm counts cores, which have threads unknown to it.
        ((0, 1, 2, 3), [0, 4, 1, 5, 2, 6, 3, 7], WITH_THREADS, Layout(4), {0: 0, 1: 1, 2: 2, 3: 3}),
        ((2, 3), [2, 6, 3, 7], WITH_THREADS, Layout(4), {2: 2, 3: 3}),
        # Slurm counts threads as cores, or does not count all cores.
        ((2, 3), [0, 4, 1, 5, 2, 6, 3, 7], WITH_THREADS, Layout(8), {2: 1, 3: 5}),
        ((0, 1), [0, 4, 1, 5, 2, 6, 3, 7], WITH_THREADS, Layout(2), {0: 0, 1: 1}),
        # Slurm gives other cores than the machine has.
        ((20, 21), [8, 9], [], Layout(64), {20: 8, 21: 9}),
        ((0, 1), [2, 3], [[0], [1], [2], [3]], Layout(4), {0: 2, 1: 3}),
        ((0, 1, 2, 3), [0, 1], [[0], [1]], Layout(4), None),
        ((3,), [0, 1], [[0], [1]], Layout(4), None),
        ((0,), [1, 2], [[0], [1], [2]], Layout(3), None),
    ],
)
def test_core_ids_are_mapped_to_cpus_of_a_node(
    ids: tuple[int, ...], usable: list[int], machine: list[list[int]], layout: Layout, cpus: Any
):
    assert binding(ids, usable, machine, layout) == cpus


def test_a_machine_file_has_a_line_for_each_core():
    slurm = replace(SITE, schema=SCHEMA, files="/run/files")
    made = launch(TWO, slurm)
    assert made.files == {"machines": "n1\nn1\nn2\nn2\nn2\n"}
    assert made.env["SLURM_HOSTFILE"] == "/run/files/7.0/machines"


def test_jobs_inside_a_node_share_machine_files():
    slurm = replace(SITE, schema=SCHEMA, files="/run/files")
    a, b = (launch(Grant((NodePart("n1", cores),)), slurm) for cores in ((0, 1), (2, 3)))
    other = launch(ONE, slurm)
    assert a.files == b.files
    ((name, text),) = a.files.items()
    assert text == "n1\nn1\n"
    assert a.env["SLURM_HOSTFILE"] == b.env["SLURM_HOSTFILE"] == f"/run/files/{name}"
    assert list(other.files.values()) == ["n1\n"]
    assert other.files.keys() != a.files.keys()
    assert not launch(TWO).files, "only those who see Slurm's variables have one"


def test_variables_get_their_values_at_launch():
    made = launch(
        TWO,
        position=1,
        more={"iteration": Iteration(3, 9, 2), "uniq": "u"},
        args=(
            "${it}",
            "${ itval }",
            "${its}",
            "${it_start}-${it_stop}",
            "${uniq}",
            "${ncores}/${nnodes}/${nlist}",
            "$${it}",
            "$$$${it}",
        ),
        wd="wd.${it}",
        stdout="${root_wd}/out.${ncores}",
        env={"K${it}": "${nlist}"},
    )
    assert made.argv == ["prog", "5", "5", "3", "3-9", "u-5", "5/2/n1,n2", "5", "${it}"]
    assert made.wd == "/data/here/wd.5"
    assert made.stdout == "/data/here/out.5"
    assert made.env["K5"] == "n1,n2"


def test_a_job_with_too_long_variables_is_refused_with_the_reason():
    more: dict[str, Any] = {"iteration": Iteration(0, 1, 1, ("v" * 100_000,)), "uniq": "u"}
    made = launch(TWO, position=0, more=more, args=("${itval}",) * 20, wd="${itval}" * 20, stdout="${itval}" * 20)
    assert made.argv[-1].startswith(
        "It cannot be started: the values of its variables have more than 1048576 characters"
    )
    assert made.setup, "the host takes the message from descriptor 3"
    assert (made.wd, made.stdout) == ("/data/here", None)
    description = JobDescription("job", Execution(exec="x", wd="${itval}" * 20, stdout="${itval}" * 20), **more)
    assert directory_of(description, 0, TWO, SITE) == "/data/here"
    assert stream_paths(description, "job", 0, TWO, SITE, saved=False) == {}
    assert command_line(description, 0, TWO, "7.0", SITE) == ""


def test_the_user_s_own_environment_wins():
    assert launch(env={"QCG_PM_NPROCS": "mine"}).env["QCG_PM_NPROCS"] == "mine"
    threads = launch(TWO, model="threads")
    assert threads.env["OMP_NUM_THREADS"] == "2"
    assert launch(TWO, model="threads", env={"OMP_NUM_THREADS": "1"}).env["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in launch(TWO, replace(SITE, threads_chosen=True), model="threads").env
    assert "OMP_NUM_THREADS" not in launch(TWO).env


@pytest.mark.parametrize(
    ("wd", "path"),
    [(None, "/data/here"), ("", "/data/here"), ("a/../b", "/data/here/b"), ("/abs", "/abs"), ("./x/", "/data/here/x")],
)
def test_a_working_directory_is_relative_to_the_managers(wd: str | None, path: str):
    assert launch(wd=wd).wd == path


def test_only_modules_and_venv_get_a_shell():
    assert not launch(modules=(), venv="").setup
    made = launch(modules=("a/1", "b"), venv="v", args=("x",))
    assert made.setup
    assert made.argv[:2] == ["bash", "-c"]
    assert made.argv[3:] == ["qcg-pm-setup", "2", "a/1", "b", "v", "prog", "x"]


def test_paths_of_streams_are_known_without_a_launch():
    description = JobDescription("j", Execution(exec="p", wd="w${it}", stderr="e.${ncores}"), iteration=Iteration(5, 7))
    assert stream_paths(description, "j", 1, TWO, SITE, saved=True) == {"stderr": "/data/here/w6/e.5"}
    site = replace(SITE, output="/run/out")
    assert stream_paths(description, "j", 1, TWO, site, saved=False) == {"stderr": "/data/here/w6/e.5"}
    both = {"stdout": "/run/out/j.6.out", "stderr": "/data/here/w6/e.5"}
    assert stream_paths(description, "j", 1, TWO, site, saved=True) == both


def test_output_without_a_file_is_saved_under_the_name_of_its_job():
    site = replace(SITE, output="/run/out")
    assert (launch(site=site).output, launch(site=site).keep_output) == ("job", False)
    assert launch(site=site, position=2, more={"iteration": Iteration(5, 9)}).output == "job.7"
    assert launch(site=site, stdout="o").output == launch(site=site, stderr="e").output == "job"
    assert launch(site=site, stdout="o", stderr="e").output == ""
    assert launch().output == ""
    assert launch(site=replace(site, keep_output=True)).keep_output


def test_output_goes_to_a_stream_on_demand():
    site = replace(SITE, output="/run/out")
    made = launch(site=site, output="stream", position=2, more={"iteration": Iteration(5, 9)})
    assert (made.stream, made.output) == (True, "job.7")
    assert not launch(site=site).stream
    all_of_them = replace(site, stream_output=True)
    assert launch(site=all_of_them).stream
    assert not launch(site=all_of_them, stderr="e").stream
    assert not launch(site=all_of_them, output="files").stream


def test_the_name_of_output_in_a_stream_is_known_without_a_launch():
    site = replace(SITE, output="/run/out")
    description = JobDescription("j", Execution(exec="p", output="stream"), iteration=Iteration(5, 7))
    found = stream_paths(description, "j", 1, TWO, site, saved=False, ordinal=3)
    assert found == {"stream": "/run/streams", "streamName": "j.6~3"}


def test_the_short_name_of_a_program_is_its_file_name():
    assert program_name(Execution(exec="/usr/bin/env")) == "env"
    assert program_name(Execution(script="true")) == "bash"


def setup(argv: list[str], modules: tuple[str, ...] = (), venv: str = "", **more: Any) -> tuple[int, str, str]:
    """Exit code, output and report of a real bash."""
    line = ["bash", "-c", '"$@" 3>report', "sh", *wrapped(argv, modules, venv)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=20, **more)
    report = Path(more["cwd"]) / "report"
    return done.returncode, done.stdout, report.read_text()


def test_the_wrapper_passes_arguments_unchanged(tmp_path: Path):
    arguments = ["", " a  b ", "'", '"', "$x", "\\", "`id`", "*", "-n", "ü\n"]
    code, out, report = setup(["printf", "%s|", *arguments], venv="", cwd=tmp_path)
    assert (code, out, report) == (0, "".join(f"{argument}|" for argument in arguments), "")
    assert setup(["sh", "-c", "exit 7"], cwd=tmp_path)[0] == 7
    code, out, _ = setup(["sh", "-c", "[ -e /dev/fd/3 ] && echo open; echo done"], cwd=tmp_path)
    assert out == "done\n", "the descriptor of the report is not for the job"


def test_the_wrapper_reports_errors_of_the_setup(tmp_path: Path):
    (tmp_path / "bad/bin").mkdir(parents=True)
    (tmp_path / "bad/bin/activate").write_text("return 1\n")
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((["no-such-program"],), "there is no program 'no-such-program'"),
        ((["true"], (), "nowhere"), "there is no virtual environment at 'nowhere'"),
        ((["true"], (), "bad"), "could not be activated"),
        ((["true"], ("nothing",), ""), "module"),
    ]
    for arguments, said in cases:
        code, _, report = setup(*arguments, cwd=tmp_path)
        assert code == 1
        assert said in report


def test_a_program_whose_name_looks_like_an_option_is_still_a_program(tmp_path: Path):
    (tmp_path / "-a").write_text("#!/bin/sh\necho it ran\n")
    (tmp_path / "-a").chmod(0o755)
    code, out, report = setup(["-a"], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (code, out, report) == (0, "it ran\n", "")


def test_a_script_is_bash_and_knows_module_when_it_uses_it():
    assert script_command("echo a") == ["bash", "-c", "echo a"]
    done = subprocess.run(
        script_command("type -t module load >/dev/null; module list; true"), capture_output=True, check=False
    )
    assert done.returncode == 0


ROWS = RowFile("/data/params.csv", 3, ("T", "note"))


def read_row(file: RowFile, position: int) -> dict[str, Any]:
    assert file is ROWS
    if position == 2:
        raise RowError("row 2 of /data/params.csv has changed since the job was submitted")
    return {"T": str(250 + position), "note": "${it} $HOME"}


def of_row(position: int, site: Site = SITE) -> Launch:
    words: dict[str, Any] = {"args": ("${row.T}", "${row.note}"), "wd": "w${row.T}", "stdout": "${row.T}.out"}
    return launch(site=site, position=position, more={"iteration": Iteration(0, 3, rows=ROWS)}, **words)


def test_an_iteration_gets_the_values_of_its_row():
    started = of_row(1, replace(SITE, rows=read_row))
    assert (started.argv, started.wd, started.stdout) == (
        ["prog", "251", "${it} $HOME"],
        "/data/here/w251",
        "251.out",
    )


@pytest.mark.parametrize(
    ("position", "site", "why"),
    [
        (2, replace(SITE, rows=read_row), "row 2 of /data/params.csv has changed since the job was submitted"),
        (0, SITE, "the rows of /data/params.csv cannot be read here"),
    ],
)
def test_an_iteration_without_its_row_is_refused_with_the_reason(position: int, site: Site, why: str):
    started = of_row(position, site)
    done = subprocess.run(started.argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert why in " ".join(started.argv) + done.stderr


def test_paths_of_an_iteration_without_its_row_are_left_out():
    execution = Execution(exec="prog", wd="w${row.T}", stdout="${row.T}.out")
    description = JobDescription("job", execution, iteration=Iteration(0, 3, rows=ROWS))
    assert stream_paths(description, "job", 2, ONE, replace(SITE, rows=read_row), saved=False) == {}
    assert directory_of(description, 2, ONE, replace(SITE, rows=read_row)) == "/data/here"
    assert command_line(description, 2, ONE, "", SITE) == ""


def test_output_of_listed_indices_is_named_by_index():
    more = {"iteration": Iteration(7, 134, listed=(31, 7, 133))}
    assert launch(site=replace(SITE, output="/out"), position=1, more=more).output == "job.7"
    assert launch(position=2, more=more, args=("${it}", "${it_start}", "${it_stop}")).argv[1:] == ["133", "7", "134"]
