"""Launches on remote hosts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qcg.pilotjob.core.records import Attempt, Grant, Job, NodePart
from qcg.pilotjob.description.iteration import RowFile
from qcg.pilotjob.description.model import (
    Amount,
    Execution,
    Iteration,
    JobDescription,
    Remote,
    ResourceRequest,
)
from qcg.pilotjob.host.records import Launch, RemotePart, RemoteRequest
from qcg.pilotjob.launch.remote import (
    RUN_DIRECTORY,
    attempt_directory,
    compose_remote,
    remote_site,
    retrieved_streams,
    shown_command,
    shown_directory,
    with_run_directory,
)
from qcg.pilotjob.launch.site import Site

SITE = remote_site("wizard", "abc", directory="qcg-run/abc", local_tree="/home/me/qcg-run/abc")
CLUSTER = remote_site("cluster", "abc", slots=True, directives={"--partition": "long", "--account": "x"})
PAIR = ResourceRequest(Amount(2, 2), host="wizard")
GRANT = Grant((NodePart("wizard", (2, 3)),))


def described(request: ResourceRequest, more: dict[str, Any], **execution: Any) -> JobDescription:
    return JobDescription("my job", Execution(**{"exec": "prog", **execution}), request, **more)


def launch(
    site: Site = SITE,
    grant: Grant = GRANT,
    request: ResourceRequest = PAIR,
    position: int = -1,
    more: dict[str, Any] | None = None,
    **execution: Any,
) -> Launch:
    description = described(request, more or {}, **execution)
    return compose_remote(description, Attempt(Job(7, "my job", b"", 0.0), position, 3, grant, 0.0), site)


def test_a_job_has_a_working_directory_and_an_attempt_directory_of_its_own():
    made = launch()
    assert made.wd == "work/1/my job"
    assert (made.stdin, made.stdout, made.stderr, made.output, made.cores) == (None, None, None, "", None)
    assert made.remote == RemotePart("job/1/my job/03", "1", "my job", 3, [], [], {}, RemoteRequest(0, 2, 0, 0, None))
    assert made.grant == [("wizard", (2, 3), ())]
    assert (made.env["QCG_PM_NPROCS"], made.env["QCG_PM_STEP_ID"]) == ("2", "abc.7.3")


def test_an_iteration_has_directories_named_by_its_index():
    more = {"iteration": Iteration(5, 9, 2), "remote": Remote(inputs=("in/${it}",), directives={"-J": "j${it}"})}
    made = launch(position=1, more=more, args=("${it}",))
    assert made.remote is not None
    assert (made.wd, made.remote.directory, made.remote.point) == ("work/7/my job", "job/7/my job/03", "7")
    assert (made.argv, made.remote.inputs, made.remote.directives) == (["prog", "7"], ["in/7"], {"-J": "j7"})


def test_paths_are_relative_to_the_run_directory():
    made = launch(wd="sub/dir", stdin="in.txt", stdout="out/o.txt", stderr="/abs/e.txt")
    assert (made.wd, made.stdin, made.stdout) == ("sub/dir", "sub/dir/in.txt", "sub/dir/out/o.txt")
    assert made.stderr == "/abs/e.txt"
    assert launch(wd="/scratch/x", stdout="o").stdout == "/scratch/x/o"
    assert launch(wd=".").wd == launch(wd="${root_wd}").wd.replace(RUN_DIRECTORY, ".") == "."
    assert (launch(wd="../x").wd, launch(wd="../../x").wd) == ("../x", "../../x")


def test_the_run_directory_is_filled_in_when_it_is_known():
    made = launch(
        wd="${root_wd}/w", args=("--at", "${root_wd}/data"), env={"HERE": "${root_wd}"}, stdout="${root_wd}/o"
    )
    assert made.argv[2] == f"{RUN_DIRECTORY}/data"
    known = with_run_directory(made, "/home/hobo/qcg-run/abc")
    assert known.argv == ["prog", "--at", "/home/hobo/qcg-run/abc/data"]
    assert known.env["HERE"] == "/home/hobo/qcg-run/abc"
    assert (known.wd, known.stdout) == ("/home/hobo/qcg-run/abc/w", "/home/hobo/qcg-run/abc/o")
    assert RUN_DIRECTORY not in repr(known)


def test_a_job_behind_a_batch_system_sees_its_request():
    request = ResourceRequest(Amount(4, 4), Amount(2, 2), gpus=1, memory=500, host="cluster")
    slot = Grant((NodePart("cluster", (17,)),))
    more = {"remote": Remote(directives={"--partition": "debug"}), "wall_time": 60.0}
    made = launch(CLUSTER, slot, request, more=more, args=("${ncores}", "${nnodes}"))
    assert made.argv == ["prog", "8", "2"]
    assert (made.env["QCG_PM_NNODES"], made.env["QCG_PM_TASKS_PER_NODE"]) == ("2", "4,4")
    assert made.grant == [("cluster", (17,), ())], "the slot comes back with the records"
    assert made.remote is not None
    assert made.remote.request == RemoteRequest(2, 4, 1, 500, 60.0)
    assert made.remote.directives == {"--partition": "debug", "--account": "x"}


def test_variables_of_the_host_are_overridden_by_those_of_the_job():
    site = remote_site("wizard", "abc", environment={"A": "host", "B": "host"})
    made = launch(site, env={"A": "job"})
    assert (made.env["A"], made.env["B"]) == ("job", "host")


def test_a_path_that_leads_out_after_substitution_is_refused():
    more = {"iteration": Iteration(0, 1, 1, ("../../etc",)), "remote": Remote(inputs=("data/${itval}",))}
    made = launch(position=0, more=more)
    assert made.setup
    assert (
        made.argv[-1] == "It cannot be started: 'data/../../etc' in its inputs or outputs leads out of its directory."
    )
    assert made.remote is not None
    assert made.remote.inputs == []


def test_a_launch_survives_json_and_messages_of_agents():
    made = launch(more={"remote": Remote(inputs=("a",), directives={"-p": "x"})})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Launch) == made
    assert msgspec.json.decode(msgspec.json.encode(made), type=Launch) == made


def test_users_see_the_directory_the_command_and_the_retrieved_files():
    description = described(ResourceRequest(host="wizard"), {}, args=("${root_wd}/x",))
    assert shown_directory(description, "my job", -1, GRANT, SITE) == "qcg-run/abc/work/1/my job"
    assert shown_command(description, -1, GRANT, SITE) == "prog qcg-run/abc/x"
    assert retrieved_streams(description, "my job", -1, SITE) == {
        "stdout": "/home/me/qcg-run/abc/log/job/1/my job/NN/job.out",
        "stderr": "/home/me/qcg-run/abc/log/job/1/my job/NN/job.err",
    }
    assert retrieved_streams(description, "my job", -1, remote_site("wizard", "abc")) == {}


def test_rows_are_read_on_the_side_of_the_manager():
    rows = RowFile("/data/params.csv", 2, ("T",))
    site = msgspec.structs.replace(SITE, rows=lambda file, position: {"T": str(250 + position)})
    more: dict[str, Any] = {"iteration": Iteration(0, 2, rows=rows), "remote": Remote(inputs=("in/${row.T}.dat",))}
    made = launch(site, position=1, more=more, args=("${row.T}",))
    assert made.argv[1:] == ["251"]
    assert made.remote is not None
    assert made.remote.inputs == ["in/251.dat"]


@pytest.mark.parametrize(("number", "name"), [(1, "01"), (2, "02"), (99, "99"), (100, "100")])
def test_attempt_directories_have_numbers_of_two_digits_or_more(number: int, name: str):
    described = JobDescription("sim", Execution(exec="true"))
    assert attempt_directory(described, "sim", -1, number) == f"job/1/sim/{name}"
