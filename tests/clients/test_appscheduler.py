"""Programs for `qcg.appscheduler`, with the calls that end their manager."""

from __future__ import annotations

from pathlib import Path

from qcg.appscheduler.api.job import Jobs
from qcg.appscheduler.api.jobinfo import JobInfo
from qcg.appscheduler.api.manager import LocalManager
from tests.support.processes import descendants


def test_a_program_with_its_own_manager_runs_and_stops_it(run_dir: Path):
    before = descendants()
    manager = LocalManager(["--wd", str(run_dir), "--nodes", "4"], {"log_file": run_dir / "api.log"})
    resources = manager.resources()
    assert (resources["totalNodes"], resources["totalCores"], resources["total_cores"]) == (1, 4, 4)
    ids = manager.submit(
        Jobs()
        .add(name="host", exec="/bin/hostname", args=["--fqdn"], stdout="host.stdout")
        .addStd(name="env", execution={"exec": "/bin/env"}, resources={"numCores": {"exact": 2}})
    )
    assert list(manager.list(ids)) == ["host", "env"]
    assert manager.wait4(ids) == {"host": "SUCCEED", "env": "SUCCEED"}
    info = manager.info_parsed("env")["env"]
    assert isinstance(info, JobInfo)
    assert info.total_cores == 2
    manager.finish()
    manager.stopManager()
    manager.cleanup()
    assert descendants() == before
    assert "request submit: 2 jobs" in (run_dir / "api.log").read_text()


def test_stopping_the_manager_ends_it_without_finish(run_dir: Path):
    before = descendants()
    manager = LocalManager(["--nodes", "1"])
    manager.submit(Jobs().add(name="long", exec="sleep", args=["60"]))
    manager.stopManager()
    assert descendants() == before
    manager.cleanup()
