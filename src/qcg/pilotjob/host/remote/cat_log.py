"""The sub-command `cat-log`: lists, shows or follows the files of an attempt."""

import contextlib
import os
import select
from typing import Any, Dict, Tuple

from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.attempts import STDERR, STDOUT
from qcg.pilotjob.host.remote.errors import REFUSED, CommandError, os_error
from qcg.pilotjob.host.remote.files import write_all
from qcg.pilotjob.host.remote.layout import Layout
from qcg.pilotjob.host.remote.log_files import find_directory, list_files
from qcg.pilotjob.host.remote.standard_streams import receive, refusal, send
from qcg.pilotjob.host.safe_open import UnsafeFile, open_regular

CHECK_INTERVAL = 0.25
"""Seconds between two reads of a file that is followed."""
MOST_ON_CHANNEL = 16 << 20
"""Bytes of a file that a channel answers with; a command of its own sends files of any size."""
_PART = 1 << 18


def main(run: str) -> int:
    """Answers with a frame, and then with the bytes of the file until its end; a followed file has none before the end
    of its job."""
    received = receive()
    if received is None:
        return 2
    frame, marker = received
    request = frame.head
    try:
        layout = Layout(run)
        layout.check()
        directory, mode = _directory_and_mode(layout, request)
        if mode == "list":
            return send(marker, {"n": request.get("n"), "ok": True, "files": list_files(directory)})
        descriptor = _open(directory, request)
    except CommandError as error:
        return send(marker, refusal(request, error))
    with os.fdopen(descriptor, "rb", buffering=0):
        if send(marker, {"n": request.get("n"), "ok": True, "directory": directory}) != 0:
            return 1
        with contextlib.suppress(BrokenPipeError):
            _copy(descriptor)
            if mode == "tail":
                _follow(descriptor, directory, bool(request.get("until_eof")))
    return 0


def read_log(layout: Layout, request: Dict[str, Any]) -> Tuple[Dict[str, Any], bytes]:
    """The answer on a channel: a file, or the last part of a long one, is the payload."""
    directory, mode = _directory_and_mode(layout, request)
    if mode == "list":
        return {"files": list_files(directory)}, b""
    if mode == "tail":
        raise CommandError("A channel cannot follow a file: call cat-log as a command of its own.", REFUSED)
    with os.fdopen(_open(directory, request), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - MOST_ON_CHANNEL, 0))
        return {"directory": directory, "size": size}, file.read(MOST_ON_CHANNEL) or b""


def _directory_and_mode(layout: Layout, request: Dict[str, Any]) -> Tuple[str, str]:
    mode = str(request.get("mode") or "cat")
    if mode not in ("list", "cat", "tail"):
        raise CommandError("%r is not a way to show logs: it is list, cat or tail." % mode, REFUSED)
    return find_directory(layout, str(request.get("directory") or "")), mode


def _open(directory: str, request: Dict[str, Any]) -> int:
    name = str(request.get("file") or "job.out")
    if "/" in name or "\0" in name or name in (".", ".."):
        raise CommandError("%r is not the name of a file of an attempt." % name, REFUSED)
    path = "%s/%s" % (directory, name)
    try:
        if name in (STDOUT, STDERR) and os.path.islink(path):
            path = os.readlink(path)  # made with the attempt, for a file that the job names
        return open_regular(path)
    except FileNotFoundError:
        there = ", ".join(list_files(directory)) or "nothing"
        raise CommandError("There is no file %s in %s; there is: %s." % (name, directory, there)) from None
    except UnsafeFile as unsafe:
        raise CommandError(unsafe.sentence + ".", REFUSED) from None
    except OSError as error:
        raise os_error("The file %s cannot be opened" % name, error) from None


def _copy(descriptor: int) -> bool:
    """Write the file from the position of its descriptor on. Returns whether anything was written."""
    copied = False
    while True:
        part = os.read(descriptor, _PART)
        if not part:
            return copied
        write_all(1, part)
        copied = True


def _follow(descriptor: int, directory: str, until_eof: bool) -> None:
    """Write data appended to the file, until the job is over or the reader is gone. `until_eof`: the reader keeps our
    input open; its end means that the reader was killed."""
    poller = select.poll()
    poller.register(1, 0)  # an error or the end of the reader is always reported
    if until_eof:
        poller.register(0, select.POLLIN)
    parent = os.getppid()
    while not poller.poll(CHECK_INTERVAL * 1000) and os.getppid() == parent:
        is_over = "ENDED" in (status_file.read(directory) or {})
        size = os.fstat(descriptor).st_size
        if size < os.lseek(descriptor, 0, os.SEEK_CUR):
            os.lseek(descriptor, 0, os.SEEK_SET)  # it was truncated
        if not _copy(descriptor) and is_over:
            return
