"""The ports of a manager to its interfaces. The command that starts it passes the implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from qcg.pilotjob.common.options import Options
from qcg.pilotjob.journal.journal import Journal
from qcg.pilotjob.wire.contact import ClientsContact
from qcg.pilotjob.wire.hub import Hub

if TYPE_CHECKING:
    from qcg.pilotjob.manager.manager import Manager


class FileProgress(NamedTuple):
    """Progress in the requests of a file, by this manager and earlier ones."""

    errors: int = 0
    """Requests that were answered with an error."""
    unread: int = 0
    """Requests that are left for the next manager."""
    refusals: Sequence[str] = ()
    """Error messages of this manager for requests of the file."""


class RequestFile(Protocol):
    """The requests of `--file-path`, read and checked before the run begins."""

    @property
    def is_empty(self) -> bool:
        """There is no file, or earlier managers have carried out all its requests."""

    async def carry_out(self, manager: Manager) -> FileProgress:
        """Carry out the requests that earlier managers have not, until the end of the file or of the manager."""


class NetworkServer(Protocol):
    """The network interface. Its address is known from the start; it answers once it serves."""

    @property
    def contact(self) -> ClientsContact: ...

    def serve(self, manager: Manager) -> None: ...

    async def close(self) -> None:
        """Answer the requests that have arrived, and close."""


class Interfaces(Protocol):
    """Opens the interfaces of one manager. Each method raises an error with a sentence for the user."""

    def read_file(self, options: Options) -> RequestFile:
        """The request file of a new run."""

    def read_file_again(self, options: Options, before: Options, journal: Journal, *, given_again: bool) -> RequestFile:
        """The request file of a resumed run. `before`: the options of the last manager. `given_again`: the user has
        named the file for this manager."""

    def open_network(self, hub: Hub, options: Options, host: str) -> NetworkServer | None:
        """The network interface, where the options want one. `host`: the address of this machine for clients."""

    async def rerun(
        self, manager: Manager, states: Sequence[str], replacements: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Run everything again that is in one of these states, with new descriptions for some jobs. Returns the reply
        to the request `rerunJob`; raises UsageError when descriptions are refused."""
