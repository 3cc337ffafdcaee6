"""Programs for version 0.14 with a manager of their own: files that they find, cancelled jobs, and resumed runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.api.errors import ServiceError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager
from tests.support.pilot import job, run, write_requests
from tests.support.waiting import wait_for


def local(wd: Path, *options: str) -> LocalManager:
    return LocalManager(["--wd", str(wd), "--nodes", "2", "--log", "debug", *options], {"wdir": str(wd)})


def test_a_program_finds_its_job_its_output_and_both_logs(tmp_path: Path):
    with local(tmp_path) as manager:
        (name,) = manager.submit(Jobs().add(exec="/bin/date", stdout="date.out"))
        assert list(manager.list()) == [name]
        assert manager.wait4(manager.list()) == {name: "SUCCEED"}
        assert (tmp_path / "date.out").stat().st_size > 0
        assert (tmp_path / ".qcgpjm-client/api.log").stat().st_size > 0
        (log,) = tmp_path.glob(".qcgpjm-service-*/service.log")
        assert log.stat().st_size > 0
        manager.remove(name)
        assert manager.list() == {}
        manager.submit(Jobs().add(name="script", script="\n  hostname >> one; date > two\n", stdout="out"))
        manager.wait4all()
        assert manager.info_parsed("script")["script"].status == "SUCCEED"
        assert [(tmp_path / name).stat().st_size > 0 for name in ("one", "two", "out")] == [True, True, False]


def test_wait4all_returns_when_the_last_iteration_has_ended(tmp_path: Path):
    with local(tmp_path) as manager:
        script = "until [ -e go ]; do sleep 0.02; done; touch end.${it}"
        (name,) = manager.submit(Jobs().add(name="it", script=script, iteration=4, stdout="out.${it}"))
        wait_for(lambda: manager.list()[name]["status"] != "SUCCEED" and (tmp_path / "out.1").exists())
        (tmp_path / "go").touch()
        manager.wait4all()
        info = manager.info_parsed(name, withChilds=True)[name]
    assert info.iterations == {"start": 0, "stop": 4, "total": 4, "finished": 4, "failed": 0}
    assert [(child.name, child.status, child.total_cores, len(child.nodes)) for child in info.childs] == [
        (f"it:{index}", "SUCCEED", 1, 1) for index in range(4)
    ]
    assert [(tmp_path / f"end.{index}").exists() for index in range(4)] == [True] * 4


def test_a_cancelled_job_that_ignores_sigterm_executes_until_it_is_killed(tmp_path: Path):
    with local(tmp_path) as manager:
        manager.submit(Jobs().add(name="deaf", script="trap '' TERM; touch up; while :; do sleep 0.1; done"))
        wait_for((tmp_path / "up").exists, what="the job")
        # The job may be up before the manager has the record of its start.
        wait_for(lambda: manager.info_parsed("deaf")["deaf"].status == "EXECUTING", what="the record of the start")
        manager.cancel(manager.list())
        assert manager.info_parsed("deaf")["deaf"].status == "EXECUTING"
        assert manager.wait4("deaf", 60) == {"deaf": "CANCELED"}


@pytest.mark.parametrize("exists", [False, True], ids=["no directory", "a directory without a run"])
def test_a_directory_without_a_run_cannot_be_resumed(tmp_path: Path, exists: bool):
    directory = tmp_path / "other"
    if exists:
        directory.mkdir()
    with pytest.raises(ServiceError, match="other"):
        local(tmp_path, "--resume", str(directory))
    assert list(tmp_path.glob(".qcgpjm-service-*")) == []


def test_a_resumed_run_continues_iterations_and_dependents_that_had_not_started(tmp_path: Path):
    """The manager is killed while the first job runs, and the job continues under its agent."""
    manager = local(tmp_path)
    jobs = Jobs().add(name="first", script="echo ${it} >> first.its", iteration=4, after=["gate"])
    jobs.add(name="second", script="echo ${it} >> second.its", iteration=4, after=["first:${it}"])
    manager.submit(jobs.add(name="gate", script="touch up; until [ -e go ]; do sleep 0.02; done"))
    wait_for((tmp_path / "up").exists, what="the first job")
    for name in ("first", "second"):
        info = manager.info_parsed(name, withChilds=True)[name]
        assert info.iterations == {"start": 0, "stop": 4, "total": 4, "finished": 0, "failed": 0}
        assert {child.status for child in info.childs} == {"QUEUED"}
    manager.qcgpm_process.kill()
    manager.kill_manager_process()
    manager.cleanup()
    (tmp_path / "go").touch()
    with local(tmp_path, "--resume", str(tmp_path)) as resumed:
        resumed.wait4all()
        infos = resumed.info_parsed(["gate", "first", "second"], withChilds=True)
    assert {info.status for info in infos.values()} == {"SUCCEED"}
    for name in ("first", "second"):
        assert [(child.name, child.status) for child in infos[name].childs] == [
            (f"{name}:{index}", "SUCCEED") for index in range(4)
        ]
        assert sorted((tmp_path / f"{name}.its").read_text().split()) == ["0", "1", "2", "3"], "each ran once"


def test_only_run_directories_of_the_directory_itself_are_runs(tmp_path: Path):
    for run_id in ("manager-1", "manager-3", "manager-2"):
        requests = write_requests(tmp_path / "r.json", [job(f"job-of-{run_id}", "true")])
        run("qcg-pm", "run", requests, "--wd", tmp_path, "--nodes", "1", "--id", run_id)
    (tmp_path / "below").mkdir()
    run("qcg-pm", "run", requests, "--wd", tmp_path / "below", "--nodes", "1", "--id", "nested")
    (tmp_path / "somepath.qcgpjm").mkdir()
    (tmp_path / ".qcgpjm-service-file").touch()
    listed = run("qcg-pm", "runs", tmp_path).stdout
    assert [name in listed for name in ("manager-1", "manager-2", "manager-3")] == [True] * 3
    assert [name in listed for name in ("nested", "somepath", "service-file")] == [False] * 3
    assert "job-of-manager-2" in run("qcg-pm", "run", "--resume", tmp_path).stdout, "the newest one"


def test_the_id_of_a_manager_names_its_run_directory_and_is_reported(tmp_path: Path):
    with local(tmp_path, "--id", "custom_manager_id", "--tags", "custom,first") as manager:
        assert manager.system_status()["System"]["InstanceId"] == "custom_manager_id"
        assert "custom_manager_id" in (tmp_path / ".qcgpjm-service-custom_manager_id/service.log").read_text()
