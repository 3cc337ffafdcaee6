"""The state of a job, as `scontrol show job` prints it."""

from __future__ import annotations

import pytest

from qcg.pilotjob.cluster.base import Phase
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.queue import parse_job

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
    assert (seen.state, seen.reason, seen.restarts, seen.exit_code) == ("COMPLETING", "TimeLimit", 2, 4)
    assert seen.phase is Phase.ENDING
    assert (seen.nodes, seen.output, seen.is_over) == ("n[1-3]", "/home/me/two words.out", False)
    assert seen.limit == "1-02:00:00"
    assert parse_job("7", SHOWN.replace("4:0", "0:9")).exit_code == 137
    assert parse_job("7", SHOWN.replace("COMPLETING", "TIMEOUT")).is_over


def test_output_without_the_job_is_refused():
    with pytest.raises(BatchError, match="does not tell how the job is"):
        parse_job("7", "slurm_load_jobs: nothing\n")
