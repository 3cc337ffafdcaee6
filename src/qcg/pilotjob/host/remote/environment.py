"""Names of the environment variables of the far side. `host/records.py` has `STEP_ID`."""

HOST_NAME = "QCG_PM_REMOTE_HOST_NAME"
"""Replaces the name of this host, for tests of several login hosts on one machine."""
GATE_ADMITS = "QCG_PM_GATE_ADMITS"
"""Set by a gate: the names of the sub-commands that it admits, because `remote-serve` carries many of them."""

# Set for jobs.
REMOTE_COMMAND = "QCG_PM_REMOTE"
"""The command of the far side, for a shell."""
REMOTE_RUN = "QCG_PM_REMOTE_RUN"
"""The run directory on the host."""
ATTEMPT_DIRECTORY = "QCG_PM_ATTEMPT_DIR"
"""The directory of the attempt."""
