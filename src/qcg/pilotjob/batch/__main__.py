"""`python -m qcg.pilotjob.batch`: the command of batch scripts."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from qcg.pilotjob.batch.allocation_runner import AllocationRunner
from qcg.pilotjob.cluster.errors import BatchError
from qcg.pilotjob.common.crash_report import report_crash


def main() -> None:
    parser = argparse.ArgumentParser(prog="qcg.pilotjob.batch", description=__doc__)
    # Batch scripts of earlier versions, which may still be queued, have --books and --most.
    chain = "directory with the state of the allocation chain"
    most = "largest number of allocations for the run"
    parser.add_argument("--state-dir", "--books", type=Path, required=True, help=chain)
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory, which may not exist yet")
    parser.add_argument("--max-allocations", "--most", type=int, required=True, help=most)
    parser.add_argument("run", nargs="+", help="arguments of qcg-pm run")
    given = parser.parse_args()
    try:
        code = AllocationRunner(given.state_dir, given.run_dir, given.max_allocations, given.run, os.environ).run()
    except BatchError as error:
        sys.exit(f"Error: {error}")
    except Exception as error:  # noqa: BLE001 the last resort for unexpected errors
        sys.exit(report_crash("python -m qcg.pilotjob.batch", error))
    sys.exit(code)


if __name__ == "__main__":
    main()
