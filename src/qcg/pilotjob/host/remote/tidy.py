"""The sub-command `remote-tidy`: removes service files at the end of a run."""

import json
import os
import shutil
import time
from typing import Any, Dict

from qcg.pilotjob.host.remote.claims import locked
from qcg.pilotjob.host.remote.errors import OTHER_RUN, CommandError, os_error
from qcg.pilotjob.host.remote.layout import Layout, make_directories, read_text, remove
from qcg.pilotjob.host.remote.ledger_view import ACKED_SUFFIX, RunView
from qcg.pilotjob.host.remote.orders import SUFFIX as ORDERS_SUFFIX
from qcg.pilotjob.host.remote.supervisor_client import LOCK_SUFFIX, LOG_SUFFIX, SOCKET_SUFFIX, SupervisorClient

SERVICE_FILES = ("contact", "keys")
_END_TIMEOUT = 5.0


def tidy(layout: Layout, everything: bool, discard: bool = False) -> Dict[str, Any]:
    """Remove the contact file and keys; with `everything` also the records of a run without jobs. Returns whether the
    records were removed.

    `discard`: remove the run directory as well, unless it has ever had a job. For tests of the connection."""
    installed = read_text(layout.installed)
    for name in set(SERVICE_FILES) | set(json.loads(installed) if installed else ()):
        remove("%s/%s" % (layout.service, name))
    remove(layout.installed)
    remove(layout.notify)
    remove(layout.known_as)
    if discard:
        return {"removed": False, "discarded": _discard(layout)}
    if not everything:
        return {"removed": False}
    _end_idle_supervisor(layout)
    with locked(layout, exclusive=True):
        if _may_have_jobs(layout):
            return {"removed": False}
        _remove_records(layout)
    return {"removed": True}


def remove_run(layout: Layout, instance: str) -> Dict[str, Any]:
    """Remove the run directory of a run that has ended. Raises CommandError, and removes nothing, unless the directory
    says that it belongs to this run and nothing runs in it."""
    recorded = read_text(layout.instance)
    if not instance or recorded is None or recorded.strip() != instance:
        text = "The directory %s on this host belongs to another run; nothing was removed."
        raise CommandError(text % layout.run_dir, OTHER_RUN)
    _end_idle_supervisor(layout)
    with locked(layout, exclusive=True):
        if _may_have_jobs(layout):
            raise CommandError("Jobs of this run may still be running in %s; nothing was removed." % layout.run_dir)
        try:
            # The identity of the directory goes last, so that a removal that fails half-way can be repeated.
            for entry in list(os.scandir(layout.run_dir)):
                if entry.path == layout.service:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
            shutil.rmtree(layout.service)
            os.rmdir(layout.run_dir)
        except OSError as error:
            raise os_error("The directory %s was not removed completely" % layout.run_dir, error) from None
    return {"removed": True}


def _end_idle_supervisor(layout: Layout) -> None:
    """End the supervisor of this host, unless it has jobs."""
    supervisor = SupervisorClient(layout)
    supervisor.call_if_running({"do": "end"})
    deadline = time.monotonic() + _END_TIMEOUT
    while supervisor.is_running() and time.monotonic() < deadline:
        time.sleep(0.01)


def _may_have_jobs(layout: Layout) -> bool:
    view = RunView(layout)
    view.read()
    return SupervisorClient(layout).is_running() or bool(view.live())


def _discard(layout: Layout) -> bool:
    with locked(layout, exclusive=True):
        had_jobs = any(os.listdir(path + "/job") for path in layout.log_directories() if os.path.isdir(path + "/job"))
        if had_jobs or layout.ledgers() or os.listdir(layout.claims):
            return False
        shutil.rmtree(layout.run_dir, ignore_errors=True)
    return not os.path.exists(layout.run_dir)


def _remove_records(layout: Layout) -> None:
    shutil.rmtree(layout.claims, ignore_errors=True)
    make_directories(layout.claims)
    shutil.rmtree(layout.files, ignore_errors=True)
    shutil.rmtree(layout.changes, ignore_errors=True)
    suffixes = (".ledger", ".asked", ACKED_SUFFIX, LOCK_SUFFIX, LOG_SUFFIX, SOCKET_SUFFIX, ORDERS_SUFFIX)
    for name in os.listdir(layout.service):
        if name.endswith(suffixes):
            remove("%s/%s" % (layout.service, name))
    remove(layout.messages)
