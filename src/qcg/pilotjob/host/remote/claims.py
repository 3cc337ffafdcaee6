"""Claims of attempts, the epoch of the channel, and the lock of both.

A claim is a file named after the attempt in `.service/claims`, made once and with its content. It exists from the
moment at which a host accepts the attempt until the manager has acknowledged its end, so a launch that arrives again,
also at another login host of the same file system, is never started again.

Each `remote-init` raises the epoch. Claims are made under the same lock as the epoch is changed: a launch of an earlier
channel is either claimed before the epoch rises, and then the new channel finds the claim, or it is refused.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from qcg.pilotjob.host.process_tree import boot_id
from qcg.pilotjob.host.records import NodeGrant
from qcg.pilotjob.host.remote.errors import STALE_EPOCH, CommandError, os_error
from qcg.pilotjob.host.remote.files import lock, write_all
from qcg.pilotjob.host.remote.layout import Layout, is_id, read_text, write_number, write_text
from qcg.pilotjob.host.safe_open import open_own, read_own

MOST_BYTES = 1 << 20


class Claim(NamedTuple):
    ledger: str
    """Name of the ledger that has the records of this attempt: the host that claimed it, or that of batch jobs."""
    host: str
    boot: str
    directory: str
    """Absolute path of the directory of the attempt; empty when the launch names none."""
    time: float
    grant: List[NodeGrant]
    batch_name: str = ""
    """The unique name of the batch job in the queue; empty without a batch system."""


@contextlib.contextmanager
def locked(layout: Layout, *, exclusive: bool) -> Iterator[bool]:
    """Hold the lock of the epoch. False where the file system has no locks: nothing is locked."""
    try:
        descriptor = open_own(layout.lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise os_error("The lock of the run cannot be opened", error) from None
    try:
        try:
            is_locked = lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        except OSError as error:
            raise os_error("The lock of the run cannot be taken", error) from None
        yield is_locked
    finally:
        os.close(descriptor)


def read_epoch(layout: Layout) -> int:
    text = read_text(layout.epoch)
    try:
        return int(text) if text else 0
    except ValueError:
        return 0


def raise_epoch(layout: Layout) -> int:
    """Begin the next epoch. The caller holds the exclusive lock."""
    epoch = read_epoch(layout) + 1
    write_number(layout.epoch, epoch)
    return epoch


def check_epoch(layout: Layout, request: Dict[str, Any], *, required: bool = False) -> None:
    """Raise CommandError when the request comes from a channel that was replaced by another one."""
    epoch = request.get("epoch")
    if epoch is None and not required:
        return
    now = read_epoch(layout)
    if not isinstance(epoch, int) or epoch < now:
        text = "The request is of channel %s of this run, and channel %d has replaced it." % (epoch, now)
        raise CommandError(text, STALE_EPOCH)


class Claims:
    """Makes claims for one ledger."""

    def __init__(self, layout: Layout, ledger: str) -> None:
        self._layout = layout
        self._ledger = ledger
        self._head = {"ledger": ledger, "host": layout.host, "boot": boot_id()}

    def make(self, id: str, directory: str, grant: List[NodeGrant], batch_name: str = "") -> bool:
        """Claim an attempt. False when it was claimed before. Raises OSError."""
        content = self._content(directory, grant, batch_name).encode("utf-8", "replace")
        # No id begins with a dot.
        new = "%s/.new-%s-%d" % (self._layout.claims, self._layout.host, os.getpid())
        try:
            _write_new(new, content)
        except FileExistsError:
            _remove(new)  # not written again, because it may be a second name of a claim
            _write_new(new, content)
        try:
            return self._link(new, self._layout.claim(id), content)
        finally:
            _remove(new)

    def _link(self, new: str, path: str, content: bytes) -> bool:
        try:
            os.link(new, path)
            return True
        except FileExistsError:
            # NFS repeats a request whose answer was lost, and then tells the result of the repetition.
            return os.stat(new).st_nlink == 2
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        # The file system has no hard links.
        try:
            _write_new(path, content)
        except FileExistsError:
            return False
        return True

    def of_this_ledger(self) -> Dict[str, Claim]:
        """All claims of this ledger, by id.

        The caller holds the exclusive lock, so that no claim is being made. One without content lost it in a crash of
        the machine. This ledger takes it over, with an unknown boot."""
        found = {}
        for id in claimed_ids(self._layout):
            claim = read_claim(self._layout, id)
            if claim is not None and not claim.ledger:
                claim = claim._replace(ledger=self._ledger, host=self._layout.host)
                with contextlib.suppress(CommandError):  # a full disk
                    write_text(self._layout.claim(id), self._content("", []))
            if claim is not None and claim.ledger == self._ledger:
                found[id] = claim
        return found

    def _content(self, directory: str, grant: List[NodeGrant], batch_name: str = "") -> str:
        fields: Dict[str, Any] = dict(self._head, directory=directory, time=time.time(), grant=grant)
        if batch_name:
            fields["batch_name"] = batch_name
        return json.dumps(fields)


def _write_new(path: str, content: bytes) -> None:
    """Make a file with this content, or none. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError:
        _remove(path)
        raise


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def claimed_ids(layout: Layout) -> List[str]:
    try:
        return [id for id in os.listdir(layout.claims) if is_id(id)]
    except FileNotFoundError:
        return []


def read_claim(layout: Layout, id: str) -> Optional[Claim]:
    """None when there is no such claim; one without a ledger when it has no content yet."""
    try:
        content = read_own(layout.claim(id), MOST_BYTES)
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(content.decode("utf-8"))
        grant = [(node, tuple(cores), tuple(gpus)) for node, cores, gpus in fields["grant"]]
        name = fields.get("batch_name", "")
        return Claim(fields["ledger"], fields["host"], fields["boot"], fields["directory"], fields["time"], grant, name)
    except (ValueError, LookupError, TypeError):
        return Claim("", "", "", "", 0.0, [])


def remove_claims(layout: Layout, ids: Iterable[str]) -> None:
    for id in ids:
        _remove(layout.claim(id))
