"""How a host runs jobs: in the background under its supervisor, or through its batch system."""

import importlib
import json
from typing import Any, Dict, List, Optional

from qcg.pilotjob.host.remote.errors import REFUSED, CommandError
from qcg.pilotjob.host.remote.layout import BATCH, Layout, read_text


class Backend:
    """One way to run jobs. Its records are in one ledger, from which the manager gets them."""

    def set_epoch(self, epoch: int) -> None:
        """Work for this channel, and change nothing once another one has replaced it."""

    def submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Claim and start the `launches` of a request `jobs-submit`, each by itself. Returns by id `"accepted"`,
        `"known"` or `{"error": sentence}`. An attempt with an error is never started. The error is also recorded as an
        end, before this returns, unless the ledger cannot be written. Raises CommandError."""
        raise NotImplementedError

    def kill(self, request: Dict[str, Any]) -> List[str]:
        """Carry out a request `jobs-kill` for its `ids`, all of which are claimed for this way. Returns the ids that
        were found. Raises CommandError."""
        raise NotImplementedError

    def poll(self) -> None:
        """Bring the ledger up to date, as far as no other process does that."""
        raise NotImplementedError


_BACKENDS = {
    "": "qcg.pilotjob.host.remote.background:Background",
    BATCH: "qcg.pilotjob.host.remote.batch_jobs:BatchJobs",
}
"""Classes by ledger; "" is the ledger of this host. Their constructor takes the layout. Imported when needed."""


def backend_of(layout: Layout, ledger: str) -> Backend:
    """The way in which the jobs of a ledger run."""
    module, _, name = _BACKENDS["" if ledger == layout.host else ledger].partition(":")
    try:
        backend: Backend = getattr(importlib.import_module(module), name)(layout)
    except ImportError:
        raise CommandError("The program on this host cannot use a batch system.", REFUSED) from None
    return backend


def read_queue(layout: Layout) -> Optional[Dict[str, Any]]:
    """The commands of the batch system of this host; None without one."""
    text = read_text(layout.batch)
    queue = json.loads(text) if text else None
    return queue if isinstance(queue, dict) else None
