"""Options of QCG-PilotJob 0.14 are accepted and ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob import __version__
from qcg.pilotjob.api.manager import LocalManager
from qcg.pilotjob.cli.commands.service import command as service
from qcg.pilotjob.cli.legacy_options import implies_net
from tests.support.pilot import WAIT, job, run, write_requests

OPTIONS = {
    "--governor": [],
    "--parent": ["tcp://127.0.0.1:1"],
    "--tags": ["a,b"],
    "--slurm-partition-nodes": ["2"],
    "--enable-rt-stats": [],
    "--enable-proc-stats": [],
    "--wrapper-rt-stats": ["qcg_pj_launch_wrapper"],
    "--disable-pub": [],
    "--disable-nl": [],
    "--slurm-resources-file": ["resources.json"],
    "--log": ["notset"],
}


def test_a_run_with_every_old_option_succeeds_and_names_them_in_one_line(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    given = [word for name, values in OPTIONS.items() for word in (name, *values)]
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "1", *given)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "no meaning" in line]
    assert [name for name in OPTIONS if name not in line] == []
    assert "--log notset" in line
    assert " DEBUG " in (tmp_path / "service.log").read_text()


def test_the_service_and_the_client_take_old_options_too(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")], WAIT)
    program = tmp_path / "program.py"
    program.write_text("print('here')")
    for command, *arguments in (
        ("qcg-pm-service", "--tags", "x", "--file-path", str(requests)),
        ("qcg-pm-client", "--wrapper-rt-stats", "w", "--tags", "x", str(program)),
    ):
        done = run(command, "--nodes", "1", "--wd", tmp_path, "--log", "notset", *arguments)
        assert done.returncode == 0, done.stderr
        [line] = [line for line in done.stderr.splitlines() if "no meaning" in line]
        assert "--tags" in line
        assert "--log notset" in line


def test_new_options_are_not_named_as_old_ones(tmp_path: Path):
    requests = write_requests(tmp_path / "r.json", [job("a", "true")])
    done = run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "1", "--log", "debug")
    assert "no meaning" not in done.stderr


@pytest.mark.parametrize("option", ["--governor", "--parent", "--slurm-partition-nodes"])
def test_options_of_governors_open_the_network_interface_as_before(option: str):
    with service.make_context("qcg-pm-service", [option, *OPTIONS[option]]) as context:
        assert implies_net(context)


def test_a_local_manager_with_old_options_starts(tmp_path: Path):
    with LocalManager(
        ["--nodes", "1", "--wd", str(tmp_path), "--governor", "--log", "notset"], {"log_file": ""}
    ) as manager:
        assert manager.resources()["total_cores"] == 1


@pytest.mark.parametrize("option", ["--version", "-V"])
@pytest.mark.parametrize("command", ["qcg-pm", "qcg-pm-service", "qcg-pm-client"])
def test_every_command_prints_its_version(command: str, option: str):
    done = run(command, option)
    assert (done.returncode, done.stdout) == (0, f"{command}, version {__version__}\n")


def test_a_part_of_an_allocation_and_virtual_nodes_contradict_each_other(tmp_path: Path):
    for other in (("--nodes", "4"), ("--resources", "local")):
        done = run("qcg-pm", "run", "r.json", "--slurm-limit-nodes-range-end", "2", *other, cwd=tmp_path)
        assert done.returncode == 2
        assert f" --limit-nodes-range-end chooses nodes of an allocation, and {other[0]}" in done.stderr
        assert not list(tmp_path.iterdir())


def test_a_range_that_does_not_fit_is_refused_with_the_names_of_its_options(tmp_path: Path):
    (tmp_path / "hosts").write_text("n1 2\nn2 2\n")
    options = " --limit-nodes-range-begin and --limit-nodes-range-end"
    given = ("qcg-pm", "run", "r.json", "--wd", "w", "--slurm-limit-nodes-range-begin", "4")
    write_requests(tmp_path / "r.json", [job("j", script="true")])
    for words in (given, [word.replace("--slurm-", "--") for word in given]):
        done = run(*words, "--resources", "hostfile:hosts", cwd=tmp_path)
        assert done.returncode == 2
        assert f"{options}: begin 4 and end 2 choose no part of the 2 nodes" in done.stderr
    done = run(*given, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{options}: begin and end choose nodes of an allocation, but there is no allocation here" in done.stderr
