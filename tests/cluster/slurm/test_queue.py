"""The state of a job, as `scontrol show job` prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qcg.pilotjob.cluster.base import EndCause, Phase
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.queue import SlurmQueue, end_cause, parse_job

SHOWN = """\
JobId=7 JobName=JobState=FAILED Reason=None
   JobState=COMPLETING Reason=TimeLimit Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=4:0
   RunTime=00:00:07 TimeLimit=1-02:00:00 TimeMin=N/A
   NodeList=n[1-3]
   StdOut=/home/me/two words.out
"""


def test_fields_of_a_job_are_read_from_the_start_of_lines():
    seen = parse_job("7", SHOWN)
    assert (seen.state, seen.reason, seen.requeue_count, seen.exit_code) == ("COMPLETING", "TimeLimit", 2, 4)
    assert seen.phase is Phase.ENDING
    assert (seen.nodes, seen.output, seen.is_over) == ("n[1-3]", "/home/me/two words.out", False)
    assert seen.limit == 26 * 3600.0
    assert parse_job("7", SHOWN.replace("4:0", "0:9")).exit_code == 137
    assert parse_job("7", SHOWN.replace("COMPLETING", "TIMEOUT")).is_over


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:30:00", 1800.0), ("2-00:00:00", 172800.0), ("UNLIMITED", None), ("Partition_Limit", None), ("INVALID", None)],
)
def test_a_time_limit_is_read_as_seconds(text: str, seconds: float | None):
    assert parse_job("7", SHOWN.replace("1-02:00:00", text)).limit == seconds


@pytest.mark.parametrize(
    ("state", "reason", "cause"),
    [
        ("COMPLETING", "TimeLimit", EndCause.TIME_LIMIT),
        ("COMPLETING", "NodeDown", EndCause.NODE_FAILED),
        ("COMPLETING", "None", EndCause.CANCELLED),
        ("RUNNING", "None", EndCause.CANCELLED),
        ("COMPLETING", "NonZeroExitCode", EndCause.UNKNOWN),
        ("PENDING", "None", EndCause.UNKNOWN),
        ("CANCELLED", "None", EndCause.CANCELLED),
        ("CANCELLED", "Dependency", EndCause.CANCELLED),
        ("TIMEOUT", "TimeLimit", EndCause.TIME_LIMIT),
        ("NODE_FAIL", "None", EndCause.NODE_FAILED),
        ("PREEMPTED", "None", EndCause.PREEMPTED),
        ("COMPLETED", "None", EndCause.UNKNOWN),
        ("FAILED", "NonZeroExitCode", EndCause.UNKNOWN),
    ],
)
def test_state_and_reason_show_why_slurm_ends_a_job(state: str, reason: str, cause: EndCause):
    assert end_cause(state, reason) is cause
    shown = SHOWN.replace("COMPLETING Reason=TimeLimit", f"{state} Reason={reason}")
    seen = parse_job("7", shown)
    assert seen.end_cause is cause
    assert seen.was_cancelled == (state == "CANCELLED")


def test_output_without_the_job_is_refused():
    with pytest.raises(BatchError, match="does not tell how the job is"):
        parse_job("7", "slurm_load_jobs: nothing\n")


@pytest.mark.parametrize(
    ("output", "directory"),
    [
        ("logs/%j.out", Path("/wd/logs")),
        ("/logs/a.out", Path("/logs")),
        ("a.out", Path("/wd")),
        ("logs-%j/a.out", None),
    ],
)
def test_the_directory_of_an_output_file_is_known_unless_it_has_a_pattern(output: str, directory: Path | None):
    assert SlurmQueue().output_directory(output, Path("/wd")) == directory
