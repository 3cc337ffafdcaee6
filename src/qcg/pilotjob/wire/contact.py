"""The contact file of a run: the address of its manager, and the keys to connect to it. Only its owner can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from qcg.pilotjob.host.safe_open import UnsafeFile, open_own

FILE_NAME = "contact.json"
MOST_BYTES = 64 << 20
"""Size of the largest request: the manager reads no more, and a client refuses to send more."""
MOST_BYTES_OF_FILE = 1 << 16
"""Size of the largest contact file that is read; usual ones have a few hundred bytes."""


class ContactError(Exception):
    """The contact file cannot be used; the message says why."""


class AgentsContact(msgspec.Struct, frozen=True):
    """Address and keys for agents."""

    address: str
    server_key: str
    """The manager's public key; all keys in Z85."""
    client_public: str
    client_secret: str
    heartbeat_address: str = msgspec.field(default="", name="pulse")
    """Address for the heartbeats of agents on other machines; `pulse` in the file, which running agents read."""


class ClientsContact(msgspec.Struct, frozen=True):
    """Addresses and keys for clients. Without keys the connection is not encrypted."""

    address: str
    publisher: str = ""
    server_key: str = ""
    client_public: str = ""
    client_secret: str = ""


class Contact(msgspec.Struct, frozen=True):
    pid: int
    """Pid of the manager; 0: it has left the run to another manager."""
    started: int
    """Start time of the manager in clock ticks after boot, because a pid may be used again for another process."""
    host: str
    agents: AgentsContact | None = None
    """Where agents connect; None when the manager connects to all its hosts itself."""
    clients: ClientsContact | None = None
    """None when the manager has no network interface."""
    allocation: str = ""
    """The allocation that ends the manager; empty for a manager outside, even when it uses nodes of an allocation."""
    cluster: str = ""
    """The cluster of the allocation."""
    batch_system: str = ""
    """The batch system of the allocation; empty in files of earlier versions."""


def read(run_dir: Path) -> Contact | None:
    """The contact of the run's manager; None when there is none."""
    found = read_stamped(run_dir)
    return found[0] if found else None


def read_stamped(run_dir: Path) -> tuple[Contact, int] | None:
    """The contact and the time of its last touch. On shared file systems only opening a file shows that time."""
    path = run_dir / FILE_NAME
    try:
        with os.fdopen(open_own(path, most_bytes=MOST_BYTES_OF_FILE), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ContactError(f"{path} can be read by others, so its keys are worth nothing; chmod 600 it")
            return msgspec.json.decode(file.read(), type=Contact), status.st_mtime_ns
    except FileNotFoundError:
        return None
    except UnsafeFile as unsafe:
        raise ContactError(unsafe.sentence) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ContactError(f"{path} cannot be read: {error}") from None


def write(run_dir: Path, contact: Contact) -> None:
    """Write the contact file so that readers see the old one or the new one, never a part."""
    temporary = run_dir / f".{FILE_NAME}.{os.getpid()}"
    try:
        descriptor = open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(contact))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(run_dir / FILE_NAME)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def remove(run_dir: Path) -> None:
    (run_dir / FILE_NAME).unlink(missing_ok=True)
