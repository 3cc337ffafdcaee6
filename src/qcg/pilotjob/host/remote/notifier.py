"""Notifies the manager of new records while no channel is open, as the host's tracking says.

A notification only says that there are new records: the manager polls then, so that every way of tracking gives the
same states. It is sent by a process of its own, which neither delays jobs nor fails them. The next poll makes up for a
lost notification."""

import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from qcg.pilotjob.host.remote.layout import Layout, read_text, remove
from qcg.pilotjob.host.remote.supervisor_client import far_command
from qcg.pilotjob.host.safe_open import open_own

PENDING_SUFFIX = ".notify"
"""Suffix of the file that exists from a notification's request until it is sent."""
STALE = 120.0
"""Seconds after which the process that was to send a notification is taken for dead."""
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each try."""
CHECK_INTERVAL = 0.25
"""Seconds between two reads of the settings while a try is awaited."""
CONNECT_TIMEOUT = 5.0
COMMAND_TIMEOUT = 30.0
PATIENCE = 45.0
"""Seconds after which no further try begins: nothing of the program stays on a host for a minute."""


def notify(layout: Layout, ids: List[str]) -> None:
    """Notify the manager of new records of these attempts, unless a notification is about to be sent."""
    if not ids or read_settings(layout) is None or not _request(layout):
        return
    try:
        log = open_own(layout.of_host(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        remove(_pending(layout))
        return
    try:
        # Reaped by the caller's own loop, or by init after the caller's end.
        subprocess.Popen(
            far_command() + ["notify", layout.run_dir],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError:
        remove(_pending(layout))
    finally:
        os.close(log)


def main(run: str) -> int:
    """The internal sub-command `notify`: sends one notification, and repeats it a few times."""
    layout = Layout(run)
    remove(_pending(layout))
    deadline = time.monotonic() + PATIENCE
    for pause in PAUSES:
        # Read anew: a manager that was started again has another address, and one that has ended has none.
        until = time.monotonic() + pause
        while read_settings(layout) is not None and time.monotonic() < until:
            time.sleep(CHECK_INTERVAL)
        settings = read_settings(layout)
        if settings is None or _send(settings, deadline):
            return 0
        if time.monotonic() >= deadline:
            break
    sys.stderr.write("The manager could not be notified; it finds new records with its next poll.\n")
    return 0


def read_settings(layout: Layout) -> Optional[Dict[str, Any]]:
    """The settings of the manager for notifications; None: it wants none."""
    text = read_text(layout.notify)
    try:
        settings = json.loads(text) if text else None
    except ValueError:
        return None
    return settings if isinstance(settings, dict) else None


def signature(key: str, text: str) -> str:
    """The proof that a message is from a process that has read the settings."""
    return hmac.new(key.encode("ascii"), text.encode("utf-8"), hashlib.sha256).hexdigest()


def _pending(layout: Layout) -> str:
    return layout.of_host(PENDING_SUFFIX)


def _request(layout: Layout) -> bool:
    """Whether this caller has to start a process: none is about to send a notification."""
    path = _pending(layout)
    try:
        if time.time() - os.stat(path).st_mtime < STALE:
            return False
        remove(path)
    except OSError:
        pass
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _send(settings: Dict[str, Any], deadline: float) -> bool:
    if settings.get("how") == "messages":
        return _send_message(settings)
    command = settings.get("command")
    if settings.get("how") == "ssh" and isinstance(command, list) and command:
        return _run_command([str(word) for word in command], deadline)
    return True


def _send_message(settings: Dict[str, Any]) -> bool:
    try:
        text = json.dumps({"host": settings["host"], "at": time.time()})
        line = "%s %s\n" % (signature(settings["key"], text), text)
        address = (str(settings["address"]), int(settings["port"]))
        with socket.create_connection(address, CONNECT_TIMEOUT) as connection:
            connection.settimeout(CONNECT_TIMEOUT)
            connection.sendall(line.encode("utf-8"))
            return connection.recv(16) == b"ok\n"
    except (OSError, KeyError, ValueError):
        return False


def _run_command(command: List[str], deadline: float) -> bool:
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write("%s cannot be started: %s\n" % (command[0], error.strerror))
        return False
    try:
        return process.wait(min(COMMAND_TIMEOUT, max(deadline - time.monotonic(), 1.0))) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
