"""Names of the environment variables that several packages read or set.

`launch/environment.py` has the variables that describe the resources of a job. `STEP_ID` is defined in `host/`, which
imports nothing of this project.
"""

from __future__ import annotations

from qcg.pilotjob.host.records import STEP_ID as STEP_ID

# Read by commands, and some by the client API.
RUN_DIRECTORY = "QCG_PJM_DIR"
"""The run or working directory that commands and clients use without another one."""
MANAGER_ADDRESS = "QCG_PJM_ADDRESS"
"""The address of the manager that commands and clients use without another one."""
BATCH_SYSTEM = "QCG_PJM_BATCH_SYSTEM"
"""The batch system that `qcg-pm alloc` submits to without `--batch-system`."""

# Set for jobs, and for programs started by `qcg-pm-client`.
JOB_CONTACT = "QCG_PM_CONTACT"
"""The contact file of the manager that started the job."""
JOB_ADDRESS = "QCG_PM_ZMQ_ADDRESS"
"""The address of the manager that started the job."""

# Set for the commands of `--notify`.
NOTIFIED_EVENT = "QCG_PM_NOTIFY_EVENT"
"""The event: `end`, `first-failure`, `failures` or `stall`."""
NOTIFIED_SENTENCE = "QCG_PM_NOTIFY_SENTENCE"
"""The event, in one sentence."""
NOTIFIED_RUN = "QCG_PM_NOTIFY_RUN"
"""The id of the run."""
NOTIFIED_DIRECTORY = "QCG_PM_NOTIFY_DIR"
"""The run directory."""

# Set for processes of the program itself.
CORE_CLAIMS = "QCG_PM_CLAIMS"
"""The directory in which the managers of a host record the cores that they use, instead of `/tmp/qcg-pm-UID`."""
HAS_NEXT_ALLOCATION = "QCG_PM_FOLLOWED"
"""Set for a manager when another allocation was requested that continues with the jobs that are left."""
EXECUTOR_CONTACT = "QCG_PM_EXECUTOR_CONTACT"
"""The contact file of the executor that a worker belongs to."""
EXECUTOR_WORKER = "QCG_PM_EXECUTOR_WORKER"
"""The name of a worker of an executor."""
EXECUTOR_JOB_NAME = "QCG_PM_EXEC_API_JOB_ID"
"""The name of a job that an executor submitted."""
