"""The calls of programs that exist, as they make them: FabSim3's templates, old and new, and EasyVVUQ-QCGPJ."""

from __future__ import annotations

from pathlib import Path

import pytest

import qcg.pilotjob
import qcg.pilotjob.api.manager
from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager


def test_the_version_is_available():
    assert getattr(qcg.pilotjob, "__version__", "unknown") != "unknown"


def test_fabsim3_runs_its_jobs(run_dir: Path):
    script = run_dir / "job.sh"
    script.write_text("echo run $1 on $QCG_PM_NPROCS; pwd >&2\n")
    manager = LocalManager(
        cfg={
            "report_format": "json",
            "scheduler": "slurm",
            "show_progress": True,
            "enable_proc_stats": False,
            "enable_rt_stats": False,
            "system_core": False,
            "log_level": "DEBUG",
        }
    )
    assert manager.resources()["total_cores"] >= 1
    jobs = Jobs()
    for number in range(3):
        wd = run_dir / f"run{number}"
        jobs.add(
            name=f"task_{number}",
            exec="bash",
            args=[str(script), str(number)],
            stdout=f"{wd}/out.txt",
            stderr=f"{wd}/err.txt",
            wd=str(wd),
            numCores={"exact": 1},
            model="default",
        )
    ids = manager.submit(jobs)
    assert manager.wait4(ids, timeout=180000) == dict.fromkeys(ids, "SUCCEED")
    info = manager.info(ids)["jobs"]
    assert [info[name]["data"]["status"] for name in ids] == ["SUCCEED"] * 3
    manager.finish()
    assert (run_dir / "run2/out.txt").read_text() == "run 2 on 1\n"
    assert (run_dir / "run2/err.txt").read_text() == f"{run_dir}/run2\n"


def test_older_templates_of_fabsim3_clean_up_after_themselves(run_dir: Path):
    manager = LocalManager(cfg={"log_level": "DEBUG"}, server_args=["--log", "debug"])
    ids = manager.submit(Jobs().add(name="a", exec="true", numCores={"exact": 1}))
    manager.wait4(ids)
    manager.remove(ids)
    assert manager.list() == {}
    manager.finish()
    manager.kill_manager_process()
    manager.cleanup()


def test_easyvvuq_qcgpj_starts_its_manager_with_a_list_of_options(run_dir: Path):
    wd = run_dir / "campaign"
    options = ["--log", "info", "--wd", str(wd), "--nodes", "3", "--system-core"]
    options += ["--enable-rt-stats", "--wrapper-rt-stats", "/nowhere/wrapper"]
    manager = LocalManager(options, {"log_file": str(wd / "api.log"), "log_level": "info"})
    assert manager.resources()["total_cores"] == 3
    jobs = Jobs()
    for name, after in (("encode", ()), ("execute", ("encode",))):
        jobs.add_std(
            {
                "name": name,
                "execution": {"exec": "sh", "args": ["-c", f"echo {name} >> order"], "modules": [], "venv": ""},
                "resources": {"numCores": {"exact": 1}},
                "dependencies": {"after": after},
            }
        )
    assert jobs.job_names() == ["encode", "execute"]
    manager.submit(jobs)
    manager.wait4all()
    assert (wd / "order").read_text() == "encode\nexecute\n"
    with pytest.raises(ConnectionError, match="'encode'"):
        manager.submit(Jobs().add(name="encode", exec="true"))
    manager.finish()
