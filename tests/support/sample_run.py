"""A campaign of realistic size in memory, for pictures and tests of displays."""

from __future__ import annotations

import math

from qcg.pilotjob.report.run_summary import Estimate, Group, History, NodeSummary, Rates
from qcg.pilotjob.watch.source import AttemptLine, Dependency, JobLine
from tests.support.memory_run import NOW, MemoryRun, summary_of

GIB = 1 << 30
LAST_LINES = (
    "Reading mesh case_0413/mesh.h5",
    "Step 1188  residual 4.1e-02",
    "Step 1189  residual 3.7e+05",
    "FloatingPointError: the solution diverged in cell 88121",
)


def sample_run() -> MemoryRun:
    lines = _lines()
    run = MemoryRun(
        lines,
        summary_of(
            lines,
            run="flow",
            directory="/home/me/campaign/.qcgpjm-service-flow",
            host="login2",
            started=NOW - 5400,
            units={"SUCCEED": 6120, "FAILED": 47, "CANCELED": 3, "EXECUTING": 118, "SCHEDULED": 6, "QUEUED": 3706},
            cores=256,
            used=236,
            gpus=8,
            gpus_used=6,
            running=118,
            nodes=_nodes(),
            rates=Rates(1.21, 1.18, 60),
            estimate=Estimate(NOW + 3120, NOW + 2700, NOW + 3900, "from the run times of 6,170 attempts"),
            waiting=(
                Group(3480, "resources", "it waits for 2 cores: all 256 are in use", "case_6294"),
                Group(
                    214,
                    "dependencies",
                    "it waits for 1 of 8 jobs to succeed: case_0413, which has failed twice and runs again",
                    "merge_027",
                ),
                Group(12, "held", "it is held since 14:02:11", "post_3"),
            ),
            failed=(
                Group(31, "exit", "exit code 1, after 2 retries", "case_0413", LAST_LINES),
                Group(14, "memory", "it used more memory than the 4 GiB that it asked for", "case_1977"),
                Group(2, "walltime", "it exceeded its wall time of 30 minutes", "case_5120"),
            ),
            history=_history(),
            notices=("Node n13 is lost since 14:11:40: its agent does not answer.",),
        ),
    )
    run.whys["case_0413"] = "It failed with exit code 1 on its third attempt; retry.max of 2 is used up."
    run.attempts["case_0413"] = tuple(
        AttemptLine(
            number,
            "FAILED",
            "exit" if number < 3 else "",
            NOW - 4000 + 900 * number,
            NOW - 3999 + 900 * number,
            NOW - 3999 + 900 * number + ran,
            1,
            f"n0{number + 1}[4:5]",
            "exit code 1",
            2 * ran * 0.97,
            0.97,
            2 * GIB + number * GIB // 7,
            3 * GIB,
            GIB // 3,
        )
        for number, ran in ((1, 612.4), (2, 598.0), (3, 605.9))
    )
    run.dependencies["case_0413"] = (
        Dependency("case_0413", "mesh_0413", "after"),
        *(Dependency(name, "case_0413", "after") for name in ("merge_027", "plot_413")),
    )
    run.outputs["case_0413", "stdout"] = _output()
    run.outputs["case_0413", "stderr"] = b"FloatingPointError: the solution diverged in cell 88121\n"
    return run


def _nodes() -> tuple[NodeSummary, ...]:
    lost = NodeSummary("n13", 16, 0, state="lost", since=NOW - 300, reason="its agent does not answer")
    ready = [
        NodeSummary(f"n{number:02d}", 16, (16, 16, 14, 16, 15, 16, 16, 9)[number % 8], 1, 1 if number % 4 else 0)
        if number < 8
        else NodeSummary(f"n{number:02d}", 16, (16, 16, 15, 16)[number % 4])
        for number in range(17)
        if number != 13
    ]
    return (lost, *ready)


def _history() -> History:
    bins = 180
    cores = tuple(256 * 30.0 if place > 4 else 128 * 30.0 for place in range(bins))
    shares = [
        min(0.99, place / 12) * (0.93 + 0.06 * math.sin(place / 5)) * (0.45 if 96 <= place < 108 else 1.0)
        for place in range(bins)
    ]
    ends = tuple(round(share * 36 + 3 * math.sin(place / 3)) if place > 6 else 0 for place, share in enumerate(shares))
    return History(
        NOW - 5400,
        30.0,
        tuple(share * had for share, had in zip(shares, cores, strict=True)),
        cores,
        ends,
        ends,
        tuple(3 if place in (41, 42, 97, 98, 99, 150) else 0 for place in range(bins)),
    )


def _lines() -> list[JobLine]:
    running = [
        JobLine(
            f"case_{6170 + number:04d}",
            "EXECUTING",
            NOW - 5390,
            NOW - (5 + 9.7 * number) % 640,
            attempts=1 if number % 11 else 2,
            grant=f"n{number % 12:02d}[{2 * (number % 8)}:{2 * (number % 8) + 1}]",
            max_memory=GIB + number * GIB // 40,
        )
        for number in range(118)
    ]
    failed = [
        JobLine(
            "case_0413",
            "FAILED",
            NOW - 5390,
            NOW - 1299,
            NOW - 693,
            3,
            1,
            "exit code 1",
            "n04[4:5]",
            0.97,
            2 * GIB + 3 * GIB // 7,
        ),
        *(
            JobLine(
                f"case_{1977 + 61 * number:04d}",
                "FAILED",
                NOW - 5390,
                NOW - 3000 - number * 31,
                NOW - 2800 - number * 40,
                1,
                None,
                "it used more memory than the 4 GiB that it asked for",
                f"n{number % 12:02d}[0:1]",
                0.61,
                4 * GIB,
            )
            for number in range(14)
        ),
    ]
    sweep = JobLine(
        "sweep",
        "QUEUED",
        NOW - 5380,
        NOW - 5300,
        iterations={"SUCCEED": 610, "FAILED": 12, "EXECUTING": 40, "QUEUED": 338},
    )
    waiting = [
        JobLine(f"case_{number:04d}", "QUEUED", NOW - 5390 + number / 1e4, message="") for number in range(6294, 6400)
    ]
    done = [
        JobLine(
            f"case_{number:04d}",
            "SUCCEED",
            NOW - 5390,
            NOW - 5000 + number,
            NOW - 4400 + number * 1.01,
            1,
            0,
            "",
            f"n{number % 12:02d}[2:3]",
            0.98,
            GIB + number * 1000,
        )
        for number in range(400)
    ]
    return [*running, *failed, sweep, *waiting, *done]


def _output() -> bytes:
    steps = [f"Step {step:4d}  residual {10 ** (-step / 400):.1e}" for step in range(600, 1188)]
    return "\n".join([LAST_LINES[0], *steps, *LAST_LINES[1:], ""]).encode()
