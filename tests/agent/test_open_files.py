"""The limits of open files of an agent and its jobs."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMITS = """
import resource
import sys
from qcg.pilotjob.agent.program import _raise_limit_of_open_files

print(_raise_limit_of_open_files(int(sys.argv[1])), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("wanted", "for_jobs"), [(70, 70), (0, 80), (5000, 100)])
def test_an_agent_raises_its_limit_and_jobs_get_at_most_the_hard_limit(wanted: int, for_jobs: int):
    """The hard limit of a node may be lower than the limit that the manager was started with."""
    limited = 'ulimit -Sn 80; ulimit -Hn 100; exec "$@"'
    line = ["sh", "-c", limited, "sh", sys.executable, "-c", LIMITS, str(wanted)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == ([str(for_jobs), "100", "100"], "")
