"""Commands of a batch system: their output and their errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qcg.pilotjob.cluster.commands import call, call_for_queue
from qcg.pilotjob.cluster.errors import (
    AllocationOver,
    BatchError,
    ClusterError,
    CommandFailed,
    NoCommand,
    UnknownAllocation,
)
from qcg.pilotjob.cluster.slurm.scontrol import scontrol


def test_the_result_is_the_standard_output_of_the_command():
    assert call(["bash", "-c", "echo $WHO; echo not this >&2"], {**os.environ, "WHO": "me"}) == "me\n"


def test_the_error_message_of_a_command_is_reported_in_one_line():
    with pytest.raises(CommandFailed) as failed:
        call(["bash", "-c", "echo 'no  such' >&2; echo >&2; echo end >&2; exit 3"], os.environ)
    assert failed.value.said == "no such; end"
    assert str(failed.value).endswith("` failed: no such; end")


def test_a_command_without_a_message_is_reported_with_its_exit_code():
    with pytest.raises(CommandFailed, match="`false` failed: exit code 1"):
        call(["false"], os.environ)


def test_a_command_that_is_missing_or_does_not_start_or_answer_is_an_error(tmp_path: Path):
    with pytest.raises(NoCommand, match="sbatch is not on \\$PATH"):
        call(["sbatch"], {"PATH": str(tmp_path)})
    (tmp_path / "sbatch").touch(mode=0o644)
    with pytest.raises(ClusterError, match="`sbatch` could not be started: Permission denied"):
        call(["sbatch"], {"PATH": str(tmp_path)})
    with pytest.raises(ClusterError, match="`sleep 60` had no answer in 0.01 s; check that the batch system is up"):
        call(["sleep", "60"], os.environ, 0.01)


@pytest.mark.parametrize(
    ("words", "patience", "error", "message"),
    [
        (
            ["no-such-program"],
            5.0,
            BatchError,
            "no-such-program is not on $PATH; on a machine without Toy",
        ),
        (["bash", "-c", "echo no such queue >&2; exit 1"], 5.0, BatchError, "bash refused: no such queue"),
        (["bash", "-c", "echo gone >&2; exit 1"], 5.0, UnknownAllocation, "bash refused: gone"),
        (["sleep", "60"], 0.01, BatchError, "`sleep 60` had no answer in 0.01 s"),
    ],
)
def test_every_error_of_a_command_of_a_queue_is_a_batch_error(
    words: list[str], patience: float, error: type[BatchError], message: str
):
    with pytest.raises(BatchError) as raised:
        call_for_queue(words, os.environ, patience, label="Toy", is_unknown=lambda failure: failure.said == "gone")
    assert type(raised.value) is error
    assert str(raised.value).startswith(message)


def test_a_job_that_slurm_does_not_know_is_over(tmp_path: Path):
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\necho slurm_load_jobs error: Invalid job id specified >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(AllocationOver, match="Slurm does not know job 7"):
        scontrol({"PATH": str(tmp_path)}, "show", "job", "7")
