"""The commands, environments and files of the execution models."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from qcg.pilotjob.cluster.registry import batch_system
from qcg.pilotjob.cluster.slurm.environment import NOT_FOR_JOBS, SCHEMA, hidden_outside_allocation
from qcg.pilotjob.cluster.slurm.multinode import MULTI_NODE
from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.model import Execution, Iteration, JobDescription, ModelName, ModelOptions
from qcg.pilotjob.host.records import Launch
from qcg.pilotjob.launch.compose import command_line, compose
from qcg.pilotjob.launch.site import MultiNode, Site

LOCAL = Site(root_wd="/data/here", instance="abc", files="/run/files", hidden_from_mpi=("SLURM_JOB_ID", "SLURM_JOBID"))
SLURM = replace(LOCAL, allocation="77", schema=SCHEMA, multi_node=MULTI_NODE, hidden=NOT_FOR_JOBS, hidden_from_mpi=())
BOUND = {"n1": {0: 4, 1: 0, 2: 5, 3: 1}, "n2": {0: 4, 1: 0, 2: 5, 3: 1}}
ONE = Grant((NodePart("n1", (0, 1)),))
UNEVEN = Grant((NodePart("n1", (0, 1)), NodePart("n2", (0, 1, 2))))
UNLIKE = Grant((NodePart("n1", (0, 1)), NodePart("n2", (3,))))
STEP = "--overlap --mem=0 --cpu-bind=none --ntasks-per-node=1"


def launch(model: Any, grant: Grant, site: Site, **execution: Any) -> Launch:
    description = JobDescription("job", Execution(exec="prog", args=("-x",), model=model, **execution))
    return compose(description, Attempt(Job(7, "job", b"", 0.0), -1, 0, grant, 0.0), site)


def bound(site: Site) -> Site:
    return replace(site, bindings=BOUND)


# -- openmpi --------------------------------------------------------------------------------------------------------


def test_openmpi_binds_by_a_rankfile_of_granted_cpus():
    made = launch("openmpi", UNLIKE, bound(SLURM))
    assert made.argv == [
        *("mpirun", "--use-hwthread-cpus", "--mca", "rmaps_rank_file_physical", "1"),
        *("--rankfile", "/run/files/7.0/ranks", "prog", "-x"),
    ]
    assert made.files["ranks"] == "rank 0=n1 slot=4\nrank 1=n1 slot=0\nrank 2=n2 slot=1\n"
    assert made.env["OMPI_MCA_plm_slurm_args"] == STEP
    assert made.cores == (4, 0)


def test_openmpi_does_not_bind_where_one_node_cannot():
    site = replace(SLURM, bindings={"n1": BOUND["n1"]})
    made = launch("openmpi", UNEVEN, site)
    assert made.argv == ["mpirun", "-n", "5", "--bind-to", "none", "prog", "-x"]
    assert list(made.files) == ["machines"]


def test_each_attempt_has_its_own_session_directory_of_open_mpi():
    name = "OMPI_MCA_orte_top_session_dir"
    description = JobDescription("job", Execution(exec="prog", model="openmpi"), iteration=Iteration(0, 2))
    alone = Grant((NodePart("n1", (0,)),))
    places = [
        compose(description, Attempt(Job(7, "job", b"", 0.0), at, 0, alone, 0.0), LOCAL).env[name] for at in (0, 1)
    ]
    assert places == ["/dev/shm/qcg-pm.abc.7-0.0", "/dev/shm/qcg-pm.abc.7-1.0"]
    assert name in launch("default", ONE, LOCAL).env, "a program may be a script that calls mpirun"
    assert name not in launch("default", alone, LOCAL).env


def test_openmpi_inside_a_node_asks_slurm_for_nothing():
    assert "OMPI_MCA_plm_slurm_args" not in launch("openmpi", ONE, bound(SLURM)).env


def test_openmpi_outside_an_allocation_oversubscribes_and_stays_on_this_machine():
    made = launch("openmpi", UNEVEN, LOCAL)
    assert made.argv == ["mpirun", "-n", "5", "--bind-to", "none", "--oversubscribe", "prog", "-x"]
    assert made.unset == ["SLURM_JOB_ID", "SLURM_JOBID"]
    assert made.files == {}


def test_the_user_chooses_mpirun_and_adds_to_its_arguments():
    options = ModelOptions(mpirun="/opt/mpirun", mpirun_args=("-v", "a b"))
    assert launch("openmpi", ONE, LOCAL, model_opts=options).argv == [
        *("/opt/mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe", "-v", "a b", "prog", "-x")
    ]
    assert launch("intelmpi", ONE, LOCAL, model_opts=options).argv == [
        *("/opt/mpirun", "-bootstrap", "fork", "-host", "localhost", "-v", "a b", "-n", "2", "prog", "-x")
    ]


@pytest.mark.parametrize("model", ["openmpi", "intelmpi"])
def test_an_argument_that_is_a_colon_does_not_begin_another_program(model: ModelName):
    description = JobDescription("job", Execution(exec="echo", args=("a b", ":", "$c"), model=model))
    made = compose(description, Attempt(Job(7, "job", b"", 0.0), -1, 0, ONE, 0.0), LOCAL)
    assert ":" not in made.argv
    assert made.argv[-3:-1] == ["bash", "-c"]
    assert subprocess.run(made.argv[-3:], capture_output=True, text=True, check=True).stdout == "a b : $c\n"


# -- intelmpi -------------------------------------------------------------------------------------------------------


def test_intelmpi_has_arguments_for_each_node():
    made = launch("intelmpi", UNEVEN, bound(SLURM))
    assert made.argv == [
        *("mpirun", "-machinefile", "/run/files/7.0/processes"),
        *("-n", "2", "-env", "I_MPI_PIN_PROCESSOR_LIST", "4,0", "prog", "-x", ":"),
        *("-n", "3", "-env", "I_MPI_PIN_PROCESSOR_LIST", "4,0,5", "prog", "-x"),
    ]
    assert made.files["processes"] == "n1:2\nn2:3\n"
    assert made.env["I_MPI_PIN"] == "on"
    assert made.env["HYDRA_BINDING"] == "user:4,0,5"
    assert made.env["HYDRA_LAUNCHER_EXTRA_ARGS"] == made.env["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"] == STEP


def test_processes_of_intelmpi_bind_themselves_where_one_list_does_not_fit_all_nodes():
    made = launch("intelmpi", UNLIKE, bound(SLURM))
    take = 'exec taskset -c "${cpus[MPI_LOCALRANKID]}" "$@"'
    assert made.argv[3:] == [
        *("-n", "2", "bash", "-c", f"cpus=(4 0); {take}", "qcg-pm-rank", "prog", "-x", ":"),
        *("-n", "1", "bash", "-c", f"cpus=(1); {take}", "qcg-pm-rank", "prog", "-x"),
    ]
    assert "HYDRA_BINDING" not in made.env
    assert made.env["I_MPI_PIN"] == "off"


def test_intelmpi_inside_a_node_needs_no_slurm():
    for site in (bound(SLURM), bound(LOCAL)):
        made = launch("intelmpi", ONE, site)
        assert made.argv == [
            *("mpirun", "-bootstrap", "fork", "-host", "localhost", "-n", "2"),
            *("-env", "I_MPI_PIN_PROCESSOR_LIST", "4,0", "prog", "-x"),
        ]
        assert made.env["HYDRA_BINDING"] == "user:4,0"


def test_intelmpi_does_not_bind_by_itself_where_cores_are_not_known():
    made = launch("intelmpi", UNEVEN, SLURM)
    assert "-env" not in made.argv
    assert made.env["I_MPI_PIN"] == "off"


def test_intelmpi_gives_each_node_its_gpus():
    grant = Grant((NodePart("n1", (0,), ("0",)), NodePart("n2", (0,), ("1",))))
    argv = launch("intelmpi", grant, SLURM).argv
    assert argv[3:] == [
        *("-n", "1", "-env", "CUDA_VISIBLE_DEVICES", "0", "-env", "QCG_PM_GPUS", "0", "prog", "-x", ":"),
        *("-n", "1", "-env", "CUDA_VISIBLE_DEVICES", "1", "-env", "QCG_PM_GPUS", "1", "prog", "-x"),
    ]


# -- srunmpi --------------------------------------------------------------------------------------------------------

SRUN = ["srun", "--overlap", "--mem=0", "--export=ALL", "-N", "2"]
PLACED = ["--distribution=arbitrary", "--cpu-bind=none"]


def test_srunmpi_starts_a_process_for_each_line_of_the_machine_file():
    made = launch("srunmpi", UNEVEN, SLURM, model_opts=ModelOptions(srun_args=("--mpi=pmix",)))
    assert made.argv == [*SRUN, "-n", "5", *PLACED, "--mpi=pmix", "prog", "-x"]
    assert made.env["SLURM_HOSTFILE"] == "/run/files/7.0/machines"
    assert made.files == {"machines": "n1\nn1\nn2\nn2\nn2\n"}


def test_srun_gets_no_number_per_node_that_it_would_warn_about():
    assert "SLURM_NTASKS_PER_NODE" not in launch("srunmpi", UNEVEN, SLURM).env
    assert launch("srunmpi", ONE, SLURM).env["SLURM_NTASKS_PER_NODE"] == "2"


UNKNOWN_NODE = '*) echo "qcg-pm: SLURMD_NODENAME=$SLURMD_NODENAME names no node of this job" >&2; exit 1;;'


def test_each_rank_of_srunmpi_is_bound_to_its_cpu():
    made = launch("srunmpi", UNLIKE, bound(SLURM))
    assert made.argv[:-3] == [
        *(*SRUN, "-n", "3", *PLACED, "bash", "-c"),
        f"case $SLURMD_NODENAME in n1) cpus=(4 0);; n2) cpus=(1);; {UNKNOWN_NODE} esac;"
        ' exec taskset -c "${cpus[SLURM_LOCALID]}" "$@"',
    ]
    assert made.argv[-3:] == ["qcg-pm-rank", "prog", "-x"]


def test_nodes_with_the_same_cpus_share_one_setting():
    grant = Grant((NodePart("n1", (0, 1)), NodePart("n2", (0, 1))))
    text = launch("srunmpi", grant, bound(SLURM)).argv[-4]
    assert text == 'cpus=(4 0); exec taskset -c "${cpus[SLURM_LOCALID]}" "$@"'


def test_ranks_of_srunmpi_see_the_gpus_of_their_node_and_no_others():
    grant = Grant((NodePart("n1", (0,), ("0",)), NodePart("n2", (0,), ("1",))))
    text = launch("srunmpi", grant, SLURM).argv[-4]
    assert text == (
        "case $SLURMD_NODENAME in n1) export CUDA_VISIBLE_DEVICES=0 QCG_PM_GPUS=0;;"
        f' n2) export CUDA_VISIBLE_DEVICES=1 QCG_PM_GPUS=1;; {UNKNOWN_NODE} esac; exec "$@"'
    )
    text = launch("srunmpi", UNEVEN, replace(SLURM, hides_gpus=True)).argv[-4]
    assert text == "export CUDA_VISIBLE_DEVICES=''; exec \"$@\""


def test_openmpi_across_nodes_gives_each_node_its_gpus():
    grant = Grant((NodePart("n1", (0,), ("0",)), NodePart("n2", (0,), ("1",))))
    made = launch("openmpi", grant, SLURM)
    assert made.argv[-3:] == ["qcg-pm-rank", "prog", "-x"]
    assert "n2) export CUDA_VISIBLE_DEVICES=1 QCG_PM_GPUS=1;;" in made.argv[-4]


@pytest.mark.parametrize(
    ("host", "printed"),
    [("n1", "0"), ("n2", "1"), ("n2.example.org", "1"), ("n3", ""), ("n22", ""), ("xn2", "")],
)
def test_without_a_variable_of_the_batch_system_the_host_name_chooses_the_gpus(tmp_path: Path, host: str, printed: str):
    grant = Grant((NodePart("n1", (0,), ("0",)), NodePart("n2", (0,), ("1",))))
    made = launch("openmpi", grant, replace(LOCAL, allocation="77", multi_node=MultiNode()))
    program = tmp_path / "uname"
    program.write_text(f'#!/bin/sh\n[ "$*" = -n ] && echo {host}\n')
    program.chmod(0o755)
    first_node = {"HOSTNAME": "n1", "PATH": f"{tmp_path}:/bin:/usr/bin"}
    words = [*made.argv[-6:-2], "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    done = subprocess.run(words, env=first_node, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == printed
    assert done.stderr == ("" if printed else f"qcg-pm: host name {host} names no node of this job\n")


def test_arguments_of_srun_about_binding_replace_the_binding_of_the_model():
    options = ModelOptions(srun_args=("--cpu-bind=rank",))
    assert launch("srunmpi", UNLIKE, bound(SLURM), model_opts=options).argv[-3:] == ["--cpu-bind=rank", "prog", "-x"]


@pytest.mark.parametrize(
    ("multi_node", "message"),
    [
        (None, "and this run uses no allocation; start it inside one, or use another model: openmpi or intelmpi"),
        (batch_system("hostfile").multi_node(), "and the hosts of a file have no batch system; use another model:"),
        (MultiNode(), "and this batch system starts no steps; use another model: openmpi or intelmpi for MPI"),
    ],
)
def test_srunmpi_without_steps_says_what_to_do(multi_node: MultiNode | None, message: str):
    made = launch("srunmpi", ONE, replace(LOCAL, multi_node=multi_node))
    assert made.setup, "the host takes the message from descriptor 3"
    done = subprocess.run(["bash", "-c", '"$@" 3>&1', "sh", *made.argv], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stdout


# -- one core -------------------------------------------------------------------------------------------------------

SINGLE = Grant((NodePart("n1", (0,)),))


@pytest.mark.parametrize("site", [LOCAL, bound(LOCAL), SLURM, bound(SLURM)])
@pytest.mark.parametrize("model", ["openmpi", "intelmpi", "srunmpi"])
def test_one_core_starts_the_program_directly(model: ModelName, site: Site):
    made = launch(model, SINGLE, site)
    assert made.argv == ["prog", "-x"]
    assert not made.setup
    assert {"ranks", "processes"}.isdisjoint(made.files)
    assert made.cores == (None if not site.bindings else (4,))
    assert command_line(JobDescription("job", Execution(exec="prog", model=model)), -1, SINGLE, "7.0", site) == "prog"


@pytest.mark.parametrize(
    ("model", "options", "starter"),
    [
        ("openmpi", ModelOptions(mpirun="/opt/mpirun"), "/opt/mpirun"),
        ("openmpi", ModelOptions(mpirun_args=("-v",)), "mpirun"),
        ("openmpi", ModelOptions(srun_args=("-v",)), "prog"),
        ("intelmpi", ModelOptions(mpirun="/opt/mpirun"), "/opt/mpirun"),
        ("intelmpi", ModelOptions(mpirun_args=("-v",)), "mpirun"),
        ("srunmpi", ModelOptions(srun_args=("-v",)), "srun"),
        ("srunmpi", ModelOptions(mpirun="/opt/mpirun"), "prog"),
    ],
)
def test_one_core_uses_the_launcher_if_the_job_has_options_for_it(model: str, options: ModelOptions, starter: str):
    assert launch(model, SINGLE, SLURM, model_opts=options).argv[0] == starter


def test_one_core_on_each_of_two_nodes_needs_a_launcher():
    grant = Grant((NodePart("n1", (0,)), NodePart("n2", (0,))))
    assert launch("openmpi", grant, SLURM).argv[0] == "mpirun"


def test_intelmpi_on_one_core_keeps_the_affinity_that_it_was_given():
    assert launch("intelmpi", SINGLE, LOCAL).env["I_MPI_PIN"] == "off"


def test_srunmpi_outside_an_allocation_names_the_other_models():
    for model in ("openmpi", "intelmpi", "threads", "default"):
        assert model in launch("srunmpi", ONE, LOCAL).argv[-1]


# -- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["openmpi", "intelmpi", "srunmpi"])
def test_a_script_runs_in_each_process(model: ModelName):
    description = JobDescription("job", Execution(script="echo $x", model=model))
    made = compose(description, Attempt(Job(7, "job", b"", 0.0), -1, 0, UNEVEN, 0.0), SLURM)
    assert made.argv[-3:] == ["bash", "-c", "echo $x"]


@pytest.mark.parametrize("model", ["openmpi", "intelmpi", "srunmpi"])
def test_modules_and_venv_are_loaded_before_the_launcher(model: str):
    made = launch(model, UNEVEN, SLURM, modules=("a",), venv="v")
    assert made.argv[:2] == ["bash", "-c"]
    assert made.argv[3:7] == ["qcg-pm-setup", "1", "a", "v"]
    assert made.argv[7] in ("mpirun", "srun")
    assert made.setup


@pytest.mark.parametrize("model", ["openmpi", "intelmpi", "srunmpi"])
def test_the_user_s_own_environment_wins_over_that_of_the_model(model: str):
    own = {"HYDRA_BINDING": "none", "OMPI_MCA_plm_slurm_args": "-v", "SLURM_HOSTFILE": "mine"}
    made = launch(model, UNEVEN, bound(SLURM), env=own)
    assert own.items() <= made.env.items()


def test_parallel_models_see_slurm_in_an_allocation_whatever_the_schema():
    common = replace(SLURM, schema=None)
    assert launch("openmpi", UNEVEN, common).env["SLURM_TASKS_PER_NODE"] == "2,3"
    assert "SLURM_TASKS_PER_NODE" not in launch("default", UNEVEN, common).env


def test_jobs_know_the_allocation_even_where_agents_do_not():
    env = launch("default", ONE, SLURM).env
    assert env["SLURM_JOB_ID"] == env["SLURM_JOBID"] == "77"
    assert "SLURM_JOB_ID" not in launch("default", ONE, replace(LOCAL, schema=SCHEMA)).env


def test_in_an_allocation_jobs_do_not_see_the_step_of_the_agent():
    made = launch("default", ONE, SLURM)
    assert {"SLURM_STEP*", "SLURM_PROCID", "SLURM_CPU_BIND*", "PMIX_*"} <= set(made.unset)
    assert launch("default", ONE, LOCAL).unset == []


def test_jobs_that_do_not_use_the_allocation_do_not_see_its_variables():
    names = ["SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_CONF", "PATH", "OMP_NUM_THREADS"]
    site = replace(LOCAL, hidden=hidden_outside_allocation(names))
    made = launch("default", ONE, site)
    assert made.unset == ["SLURMD_NODENAME", "SLURM_JOB_ID", "PMI_*", "PMI2_*", "PMIX_*"]
    own = launch("default", ONE, replace(site, schema=SCHEMA))
    assert own.env["SLURM_NTASKS"] == "2"
    assert "SLURM_JOB_ID" not in own.env


def test_the_displayed_command_can_be_typed_into_a_shell():
    description = JobDescription("job", Execution(exec="prog", args=("a b", "${ncores}"), model="openmpi", venv="v"))
    assert command_line(description, -1, UNEVEN, "7.0", LOCAL) == (
        "mpirun -n 5 --bind-to none --oversubscribe prog 'a b' 5"
    )
    plain = JobDescription("job", Execution(script="echo 'x'"))
    assert command_line(plain, -1, ONE, "", LOCAL) == """bash -c 'echo '"'"'x'"'"''"""
