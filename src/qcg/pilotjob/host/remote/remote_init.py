"""The sub-command `remote-init`: makes the run directory, or takes it over for a new channel."""

import io
import json
import os
import re
import shutil
import sys
from typing import Any, Dict, List

from qcg.pilotjob.host.process_tree import boot_id
from qcg.pilotjob.host.remote.claims import locked, raise_epoch, read_epoch
from qcg.pilotjob.host.remote.errors import OTHER_HOST, OTHER_RUN, REFUSED, CannotWrite, CommandError, os_error
from qcg.pilotjob.host.remote.layout import Layout, make_directories, read_text, write_changed
from qcg.pilotjob.host.remote.ledger_view import RunView
from qcg.pilotjob.host.remote.logout import logout_notices

VERSION = 1
"""Version of the requests and replies, to be raised with every change that an older manager could not read."""
MOST_SERVICE_BYTES = 1 << 20
CANNOT_WRITE = "%s Jobs that run there can be watched and killed, and no others can start until files can be written."
NO_LOCKS = "The file system of %s has no locks; use only one manager and one login host at a time for this run."
_LOG = re.compile(r"log\.[A-Za-z0-9_-]+\Z")
_SERVICE_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\Z")
_OWN_NAMES = ("instance", "known-as", "uuid", "epoch", "lock", "claims", "changes", "files", "installed", "messages")
_OWN_SUFFIXES = (".ledger", ".acked", ".asked", ".lock", ".sock", ".log", ".orders", ".json")


def remote_init(layout: Layout, request: Dict[str, Any], payload: bytes) -> Dict[str, Any]:
    instance = request.get("instance")
    if not isinstance(instance, str) or not instance:
        raise CommandError("The request names no run.", REFUSED)
    layout.make()
    notices: List[str] = []
    with locked(layout, exclusive=True) as is_locked:
        if not is_locked:
            notices.append(NO_LOCKS % layout.run_dir)
        if not layout.is_made_by(instance):
            text = "The directory %s on this host belongs to another run; choose another run directory."
            raise CommandError(text % layout.run_dir, OTHER_RUN)
        _check_host(layout, request)
        is_new = not os.path.exists(layout.instance)
        epoch = read_epoch(layout)
        try:
            # First: a channel that was replaced must not start jobs, whatever fails below.
            epoch = raise_epoch(layout)
            _set_up(layout, request, instance, payload)
        except CannotWrite as error:
            if is_new or not epoch:
                raise
            notices.append(CANNOT_WRITE % error)
    view = RunView(layout)
    view.read()
    return {
        "version": VERSION,
        "hostname": layout.host,
        "boot": boot_id(),
        "home": layout.home,
        "run_dir": layout.run_dir,
        "shared": _is_shared(layout, request.get("uuid")),
        "epoch": epoch,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "ledgers": {name: ledger.last for name, ledger in view.ledgers.items()},
        "boots": {name: ledger.boot for name, ledger in view.ledgers.items()},
        "notices": notices + logout_notices(),
        "missing": _missing_programs(request.get("batch")),
    }


def _set_up(layout: Layout, request: Dict[str, Any], instance: str, payload: bytes) -> None:
    write_changed(layout.instance, instance + "\n")
    if request.get("host"):
        write_changed(layout.known_as, "%s\n" % request["host"])
    write_changed(layout.notify, json.dumps(request.get("notify")))
    write_changed(layout.batch, json.dumps(request.get("batch")))
    _make_directories(layout, request.get("log"))
    if payload:
        _install(layout, payload)


def _check_host(layout: Layout, request: Dict[str, Any]) -> None:
    """Raise CommandError when the run uses this directory as that of another host: the channels of both would replace
    each other, and each would report the jobs of the other."""
    name = request.get("host")
    before = (read_text(layout.known_as) or "").strip()
    if name and before and before != name:
        text = (
            "The run has its directory %s on this host already, for the host %s, which has the same files: name both"
            " as `address` of one host, or give %s a `directory` of its own"
        )
        raise CommandError(text % (layout.run_dir, before, name), OTHER_HOST)


def _missing_programs(queue: Any) -> List[str]:
    """The programs of the batch system that this host does not find."""
    if not isinstance(queue, dict):
        return []
    commands = [queue.get(key) for key in ("submit", "list_jobs", "kill")]
    programs = {str(command[0]) for command in commands if isinstance(command, list) and command}
    return sorted(program for program in programs if shutil.which(program) is None)


def _is_shared(layout: Layout, uuid: Any) -> bool:
    """Whether the manager has written this random text into the same file: then both have one file system."""
    try:
        with open(layout.uuid, "rb") as file:
            return bool(uuid) and file.read(1000).decode("utf-8", "replace").strip() == uuid
    except OSError:
        return False


def _make_directories(layout: Layout, log: Any) -> None:
    try:
        for name in ("work", "share", "share/cycle"):
            make_directories("%s/%s" % (layout.run_dir, name))
        if log is None:
            return
        if not isinstance(log, str) or _LOG.match(log) is None:
            raise CommandError("%r is not the name of a log directory, such as log.20180418T025047Z." % log, REFUSED)
        make_directories("%s/%s/job" % (layout.run_dir, log))
        if not os.path.islink(layout.log) or os.readlink(layout.log) != log:
            new = "%s.new-%d" % (layout.log, os.getpid())
            os.symlink(log, new)
            os.rename(new, layout.log)
    except OSError as error:
        raise CannotWrite(str(os_error("The run directory %s cannot be set up" % layout.run_dir, error))) from None


def _install(layout: Layout, payload: bytes) -> None:
    """Write the service files of the archive, such as the contact file and keys, so that only the user reads them."""
    import tarfile

    names: List[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
            for member in archive:
                name = member.name[2:] if member.name.startswith("./") else member.name
                if member.isdir():
                    continue
                _check_service_file(name, member.isfile(), member.size)
                file = archive.extractfile(member)
                assert file is not None
                write_changed("%s/%s" % (layout.service, name), file.read().decode("utf-8", "surrogateescape"))
                names.append(name)
    except tarfile.TarError as error:
        raise CommandError("The archive of service files cannot be read: %s." % error) from None
    write_changed(layout.installed, json.dumps(names))


def _check_service_file(name: str, is_file: bool, size: int) -> None:
    is_own = (
        name in _OWN_NAMES or "." in name and name.rpartition(".")[2] in ("ledger", "acked", "lock", "sock", "json")
    )
    if not is_file or _SERVICE_FILE.match(name) is None or is_own or size > MOST_SERVICE_BYTES:
        raise CommandError("The archive of service files has %r, which is no small file of its own." % name, REFUSED)
