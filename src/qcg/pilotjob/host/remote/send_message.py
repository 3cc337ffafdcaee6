"""The sub-command `message`: a job sends a text to its manager. It never fails the job."""

import os
import sys
import time

from qcg.pilotjob.host.records import STEP_ID
from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.environment import ATTEMPT_DIRECTORY
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import Layout, read_text
from qcg.pilotjob.host.remote.messages import store
from qcg.pilotjob.host.remote.notifier import notify
from qcg.pilotjob.host.remote.supervisor_client import SupervisorClient

LONGEST_MESSAGE = 4000
"""Characters of a message; more are cut off."""


def main(run: str, *words: str) -> int:
    """Always 0: a job must not fail because a message cannot be sent."""
    text = " ".join(words)[:LONGEST_MESSAGE]
    try:
        send_message(Layout(run), text)
    except CommandError as error:
        sys.stderr.write("The message was not stored: %s\n" % error)
    except OSError as error:
        sys.stderr.write("The message was not stored: %s.\n" % error.strerror)
    return 0


def send_message(layout: Layout, text: str) -> None:
    """Store a message of the attempt that this process belongs to, and have it delivered."""
    layout.check()
    id = _attempt_id(layout)
    at = time.time()
    directory = os.environ.get(ATTEMPT_DIRECTORY, "")
    if directory:
        status_file.append(directory, [("MESSAGE", "%s|%s" % (status_file.timestamp(at), text))])
    store(layout, id, at, text)
    if SupervisorClient(layout).call_if_running({"do": "wake"}) is None:
        notify(layout, [id])


def _attempt_id(layout: Layout) -> str:
    marker = os.environ.get(STEP_ID, "")
    instance = (read_text(layout.instance) or "").strip()
    if not instance or not marker.startswith(instance + "."):
        raise CommandError("only a job of the run %s can send messages." % layout.run_dir)
    return marker[len(instance) + 1 :]
