"""Time limits of allocations, in the forms of this project and of Slurm."""

from __future__ import annotations

import pytest

from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.cluster.slurm.options import slurm_time


@pytest.mark.parametrize(
    ("given", "slurm"),
    [
        ("1h", "01:00:00"),
        ("1h30m", "01:30:00"),
        ("36h", "1-12:00:00"),
        ("2d", "2-00:00:00"),
        ("PT90M", "01:30:00"),
        ("01:30:00", "01:30:00"),
        ("1-12:00:00", "1-12:00:00"),
        ("90", "01:30:00"),
        ("90:00", "01:30:00"),
        ("1-12", "1-12:00:00"),
        ("1-12:30", "1-12:30:00"),
        ("30s", "00:01:00"),
        ("0:30", "00:01:00"),
        (" 10m ", "00:10:00"),
        ("unlimited", "UNLIMITED"),
        ("INFINITE", "UNLIMITED"),
    ],
)
def test_a_time_limit_in_any_form_is_converted_to_whole_minutes_for_sbatch(given: str, slurm: str):
    assert slurm_time(given) == slurm


@pytest.mark.parametrize("given", ["", "1x", "an hour", "1:2:3:4", "-5", "1-", "0", "0s", "1000d", "١h"])
def test_an_invalid_time_limit_is_refused_with_the_valid_forms(given: str):
    with pytest.raises(BatchError, match="1h30m, 01:30:00") as refused:
        slurm_time(given)
    assert repr(given) in str(refused.value)
