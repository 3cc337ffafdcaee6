"""Where the manager is: its address and the keys that open it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.api.errors import ConnectionError
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ClientsContact, ContactError

ADDRESS = "QCG_PM_ZMQ_ADDRESS"
CONTACT = "QCG_PM_CONTACT"
"""Set for jobs: the contact file of their manager."""
RUN_DIRECTORIES = ".qcgpjm-service-*"
DEFAULT_ADDRESS = "tcp://127.0.0.1:5555"
DEFAULT_PORT = 5555


class Target(Struct, frozen=True):
    contact: ClientsContact
    run_dir: Path | None
    """Where to look again when the manager has moved."""

    def again(self) -> Target:
        """The same run's manager as it is now."""
        if self.run_dir is not None:
            found = _read(self.run_dir)
            if found is not None:
                return Target(found, self.run_dir)
        return self


def find_target(address: str | None, environ: Mapping[str, str]) -> Target:
    """The manager at an address, or the one whose job this process is. Its keys come from the contact file of the run:
    the one named in the environment, or one below the working directory. Without keys the connection is plain."""
    given = address or environ.get(ADDRESS)
    wanted = complete(given) if given else None
    unreadable: ConnectionError | None = None
    for run_dir in _run_dirs(environ):
        try:
            found = _read(run_dir)
        except ConnectionError as error:
            unreadable = unreadable or error
            continue
        if found is not None and wanted in (None, found.address):
            return Target(found, run_dir)
    if unreadable is not None:
        raise unreadable
    return Target(ClientsContact(address=wanted or DEFAULT_ADDRESS), None)


def target_of(run_dir: Path) -> Target:
    """The manager of this run."""
    found = _read(run_dir)
    if found is None:
        raise ConnectionError(f"no manager with a network interface is at work in {run_dir}")
    return Target(found, run_dir)


def complete(address: str) -> str:
    """`host`, `host:port` or `proto://host:port`; managers tell their addresses in numbers."""
    protocol, separator, rest = address.rpartition("://")
    host, colon, port = rest.partition(":")
    host = "127.0.0.1" if host == "localhost" else host
    return f"{protocol if separator else 'tcp'}://{host}:{port if colon else DEFAULT_PORT}"


def _run_dirs(environ: Mapping[str, str]) -> Iterator[Path]:
    if CONTACT in environ:
        yield Path(environ[CONTACT]).parent
    if environ.get("QCG_PJM_DIR"):
        yield Path(environ["QCG_PJM_DIR"])
    yield from sorted(Path(os.curdir).glob(RUN_DIRECTORIES), key=_age)


def _age(path: Path) -> int:
    try:
        return -path.stat().st_mtime_ns
    except OSError:  # it has just gone, or is none of ours
        return 0


def _read(run_dir: Path) -> ClientsContact | None:
    try:
        found = contact.read(run_dir)
    except ContactError as error:
        raise ConnectionError(str(error)) from None
    return None if found is None else found.clients
