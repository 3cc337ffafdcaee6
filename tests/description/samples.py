"""Request files as users write them."""

from __future__ import annotations

from typing import Any

SLEEP: list[Any] = [
    {
        "request": "submit",
        "jobs": [
            {
                "name": "msleep2",
                "execution": {
                    "exec": "/bin/sleep",
                    "args": ["5s"],
                    "env": {},
                    "wd": "sleep.sandbox",
                    "stdout": "sleep2.${ncores}.${nnodes}.stdout",
                    "stderr": "sleep2.${ncores}.${nnodes}.stderr",
                },
                "resources": {"numCores": {"exact": 2}},
            }
        ],
    },
    {"request": "listJobs"},
    {"request": "jobStatus", "jobNames": ["msleep2", "echo"]},
    {"request": "jobInfo", "jobNames": ["msleep2", "echo"], "params": {"withChilds": True}},
    {"request": "cancelJob", "jobName": "msleep2"},
    {"request": "setJob", "jobNames": ["a"], "numCores": {"max": 2}, "nodeCrs": {"gpu": 1}, "mem": "2GB", "wt": "1h"},
    {"request": "setJob", "jobName": "a", "numNodes": 2, "priority": -1},
    {"request": "rerunJob", "jobNames": "a", "states": ["failed"], "jobs": [{"name": "a", "exec": "x"}]},
    {"request": "holdJob", "jobNames": ["a:3"]},
    {"request": "releaseJob", "jobNames": ["a:3"]},
    {"request": "removeJob", "jobNames": "msleep2"},
    {"request": "resourcesInfo"},
    {"request": "hosts"},
    {"request": "connectHost", "host": "wizard"},
    {"request": "forgetHost", "host": "wizard"},
    {"request": "drainNodes", "nodes": ["n1", "n2"], "reason": "the disk is full"},
    {"request": "resumeNodes", "nodes": "n1"},
    {"request": "pollJobs", "jobNames": ["a", "b:3"]},
    {"request": "pollJobs", "host": "wizard"},
    {"request": "endedJobs", "after": 3},
    {"request": "status", "options": {"allJobsFinished": True}},
    {"request": "finish"},
]


def _stage(name: str, script: str, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{name}_bac16_${{it}}",
        "iterate": [1, 17],
        "execution": {
            "exec": "bash",
            "args": [f"${{root_wd}}/{script}", "${it}"],
            "stdout": "logs/${jname}.stdout",
            "stderr": "logs/${jname}.stderr",
        },
        "resources": resources,
    }


BAC16: list[Any] = [
    {
        "request": "submit",
        "jobs": [
            _stage("namd", "bac-namd.sh", {"numNodes": {"min": 1, "max": 2}}),
            {
                **_stage("amber", "bac-amber.sh", {"numCores": {"exact": 4}}),
                "dependencies": {"after": ["namd_bac16_${it}"]},
            },
        ],
    },
    {"request": "control", "command": "finishAfterAllTasksDone"},
]

EVERYTHING: list[Any] = [
    {
        "request": "submit",
        "jobs": [
            {
                "name": "all_${rcnt}",
                "iteration": {"start": 0, "stop": 10, "step": 2},
                "execution": {
                    "exec": "app",
                    "args": ["-n", 4, 0.5, "${it}", "$${it}"],
                    "env": {"A": "b", "N": 1},
                    "wd": "w/${it}",
                    "stdin": "in",
                    "stdout": "out",
                    "stderr": "out",
                    "modules": ["gcc", "openmpi"],
                    "venv": "",
                    "model": "OpenMPI",
                    "model_opts": {"mpirun": "mpirun", "mpirun_args": ["-v"], "srun_args": []},
                },
                "resources": {
                    "numCores": {"min": 2, "scheduler": {"name": "maximum-iters", "params": {}}},
                    "nodeCrs": {"GPU": 1, "mem": 1024},
                    "wt": "1h30m",
                },
                "dependencies": {"after": ["first", "first:3", "first:${it}"]},
                "attributes": {"note": ["${jname}", None, {"x": 1.5}]},
            },
            {
                "name": "flat",
                "script": "echo ${x} ${itval}\n",
                "iteration": {"values": ["a", 1, None, [2]]},
                "numCores": {"split-into": 2, "min": 1},
                "numNodes": 1,
                "modules": "gcc openmpi",
                "after": "first",
                "wt": 90,
            },
            {
                "name": "grid",
                "exec": "true",
                "args": ["${T}", "${itval.p}"],
                "iteration": {"product": {"T": [250, 300.5], "p": [1, None, {"x": [1]}]}},
            },
            {"name": "pairs", "exec": "true", "args": ["${T}"], "iteration": {"zip": {"T": [1, 2], "p": ["a", "b"]}}},
            {"name": "rows", "exec": "true", "args": ["${row.T}"], "iteration": {"file": "params.csv"}},
            {"name": "some", "exec": "true", "iteration": {"indices": [31, 7, 133]}},
            {"name": "one_${it}", "exec": "true", "args": "x", "iterate": [0, 6, 2], "numNodes": {"max": 3}},
            {
                "name": "threads",
                "exec": "true",
                "model": "threads",
                "numCores": {"min": 1, "max": 4},
                "iteration": None,
            },
            {
                "name": "measured",
                "iteration": 3,
                "execution": {"script": "x", "output": "files", "stdout": "o.${it}.${attempt}"},
                "resources": {"mem": 1 << 30, "named": {"license": 1}, "nodeCrs": {"gpu": 2}, "wt": 60},
                "retry": {"on": {"exit": 1, "lost": 5}, "exit_codes": [1, "10-20"], "grow": {"mem": 1.5, "wt": 2}},
                "priority": 7,
                "hold": False,
                "dependencies": {"afterany": ["some"], "afternotok": "grid", "afterstart": ["rows", "pairs:1"]},
            },
            {
                "name": "urgent",
                "exec": "x",
                "numCores": 2,
                "nodeCrs": {"gpu": 0.5},
                "mem": "2GB",
                "named": {"license": 2, "fpga": 1},
                "wt": "01:30:00",
                "output": "stream",
                "afterany": "some:7",
                "afternotok": ["grid"],
                "afterstart": "rows",
                "retry": {
                    "max": 2,
                    "on": ["timeout", "memory"],
                    "delay": "10s",
                    "factor": 1.5,
                    "max_delay": 600,
                    "grow": {"wt": ["2h", 9000], "mem": [4 << 30, "8GB"], "numCores": 2},
                },
                "priority": -3,
                "hold": True,
            },
            {"name": "again", "exec": "x", "retry": 3, "output": None, "hold": None},
        ],
    },
]
