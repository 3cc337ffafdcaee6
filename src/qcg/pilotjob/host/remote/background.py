"""Jobs in the background of a host, under its supervisor."""

from typing import Any, Dict, List

from qcg.pilotjob.host.remote.backends import Backend
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import Layout
from qcg.pilotjob.host.remote.ledger_view import RunView
from qcg.pilotjob.host.remote.supervisor_client import SupervisorClient


class Background(Backend):
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._supervisor = SupervisorClient(layout)

    def submit(self, request: Dict[str, Any]) -> Dict[str, Any]:
        results: Dict[str, Any] = self._call(request)["results"]
        return results

    def kill(self, request: Dict[str, Any]) -> List[str]:
        done: List[str] = self._call(request)["done"]
        return done

    def poll(self) -> None:
        """The supervisor records everything. A supervisor that was killed is replaced; the new one kills and records
        its jobs."""
        if self._supervisor.is_running():
            return
        view = RunView(self._layout)
        view.read()
        if view.is_unsupervised():
            self._supervisor.ensure()

    def _call(self, request: Dict[str, Any]) -> Dict[str, Any]:
        reply = self._supervisor.call(request)
        if not reply.get("ok"):
            raise CommandError(str(reply.get("error")), str(reply.get("code")))
        return reply
