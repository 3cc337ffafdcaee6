"""The handlers of requests, for commands that answer one request and for channels that answer many."""

import contextlib
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from qcg.pilotjob.host.remote import status_file
from qcg.pilotjob.host.remote.backends import Backend, backend_of, read_queue
from qcg.pilotjob.host.remote.claims import check_epoch, read_claim
from qcg.pilotjob.host.remote.environment import GATE_ADMITS
from qcg.pilotjob.host.remote.errors import FAILED, REFUSED, CommandError
from qcg.pilotjob.host.remote.frames import Frame
from qcg.pilotjob.host.remote.layout import BATCH, Layout, is_id
from qcg.pilotjob.host.remote.ledger_view import RunView, to_json
from qcg.pilotjob.host.remote.log_files import find_directory
from qcg.pilotjob.host.remote.messages import MESSAGES, Messages
from qcg.pilotjob.host.remote.orders import Orders

Reply = Tuple[Dict[str, Any], bytes]


class Commands:
    """Answers requests for one run."""

    def __init__(
        self, layout: Layout, sends_records: bool = False, before_start: Callable[[], None] = lambda: None
    ) -> None:
        """`sends_records`: the caller pushes records and messages, so that replies repeat them only when a
        request asks for a full report. `before_start` is called before jobs are passed to the supervisor."""
        self._layout = layout
        self._before_start = before_start
        self._sends_records = sends_records
        self._batch: Optional[Backend] = None
        self._epoch: Optional[int] = None
        self.view = RunView(layout, keeps_open=sends_records)
        self.messages = Messages(layout)
        self._handlers: Dict[str, Callable[[Dict[str, Any], bytes], Reply]] = {
            "remote-init": self._init,
            "jobs-submit": self._submit,
            "jobs-poll": self._poll,
            "jobs-kill": self._kill,
            "cat-log": self._cat_log,
            "remote-tidy": self._tidy,
            "beat": self._beat,
        }

    def use_batch(self, backend: Backend) -> None:
        """Run batch jobs with this backend, which the caller keeps."""
        self._batch = backend

    def answer(self, frame: Frame) -> Reply:
        """The reply to a request, also to one that fails."""
        request, payload = frame
        reply: Dict[str, Any] = {"n": request.get("n"), "ok": True}
        content = b""
        try:
            handler = self._handlers.get(str(request.get("do")))
            if handler is None:
                raise CommandError("This program does not know the request %r." % request.get("do"), REFUSED)
            self._check_admitted(str(request["do"]))
            if handler != self._init:
                if self._needs_directory(request):
                    self._layout.check()
                check_epoch(self._layout, request)
                self._epoch = request.get("epoch", self._epoch)
            answer, content = handler(request, payload)
            reply.update(answer)
        except CommandError as error:
            reply.update(ok=False, error=str(error), code=error.code)
        except OSError as error:
            place = "" if error.filename is None else " (%s)" % error.filename
            text = "The request %s failed on the host: %s%s." % (request.get("do"), error.strerror, place)
            reply.update(ok=False, error=text, code=FAILED)
        return reply, content

    def _needs_directory(self, request: Dict[str, Any]) -> bool:
        """Heartbeats and acknowledgements keep up a channel, which may still bring ends of jobs when the run directory
        was removed."""
        is_acknowledgement = request["do"] == "jobs-poll" and not request.get("full") and not request.get("paths")
        return not (self._sends_records and (request["do"] == "beat" or is_acknowledgement))

    def _check_admitted(self, do: str) -> None:
        """A gate admits sub-commands by name, also sub-commands of a channel."""
        admitted = os.environ.get(GATE_ADMITS)
        if admitted is not None and do != "beat" and do not in admitted.split(","):
            raise CommandError("The gate of this host does not admit %s." % do, REFUSED)

    def _init(self, request: Dict[str, Any], payload: bytes) -> Reply:
        from qcg.pilotjob.host.remote.remote_init import remote_init

        return remote_init(self._layout, request, payload), b""

    def _submit(self, request: Dict[str, Any], payload: bytes) -> Reply:
        if read_queue(self._layout) is not None:
            return {"results": self._backend(BATCH).submit(request)}, b""
        self._before_start()
        return {"results": self._backend(self._layout.host).submit(request)}, b""

    def _poll(self, request: Dict[str, Any], payload: bytes) -> Reply:
        full = bool(request.get("full"))
        acks = {name: number for name, number in (request.get("acks") or {}).items() if isinstance(number, int)}
        if full or not self._sends_records:
            self._bring_up_to_date()
            self.view.read()
        self.view.acknowledge(acks)
        self.messages.acknowledge(acks.get(MESSAGES, 0))
        reply: Dict[str, Any] = {"reports": {}, "live": [], "messages": []}
        if full:
            reply["live"] = [list(running) for running in self.view.live()]
        if full or not self._sends_records:
            reply["reports"] = {name: to_json(records) for name, records in self.view.unacknowledged().items()}
            reply["messages"] = self.messages.unacknowledged()
        if request.get("paths"):
            reply["states"] = {str(path): self._state(str(path)) for path in request["paths"]}
        return reply, b""

    def _bring_up_to_date(self) -> None:
        self._backend(self._layout.host).poll()
        if BATCH in self._layout.ledgers() and read_queue(self._layout) is not None:
            self._backend(BATCH).poll()

    def _backend(self, ledger: str) -> Backend:
        if ledger == BATCH and self._batch is not None:
            return self._batch
        backend = backend_of(self._layout, ledger)
        if self._epoch is not None:
            backend.set_epoch(self._epoch)
        return backend

    def _state(self, path: str) -> Dict[str, Any]:
        """The status file of an attempt; empty when there is none."""
        with contextlib.suppress(CommandError):
            return status_file.read(find_directory(self._layout, path)) or {}
        return {}

    def _kill(self, request: Dict[str, Any], payload: bytes) -> Reply:
        by_ledger: Dict[str, List[str]] = {}
        for id in request.get("ids") or ():
            claim = read_claim(self._layout, id) if is_id(id) else None
            if claim is not None:
                by_ledger.setdefault(claim.ledger, []).append(id)
        done: List[str] = []
        left: List[str] = []
        for ledger, ids in by_ledger.items():
            order = dict(request, ids=ids)
            if ledger in (self._layout.host, BATCH):
                done += self._backend(ledger).kill(order)
            elif ledger:
                # This host cannot tell whether the other one will ever read it.
                Orders(self._layout, ledger).give(order)
                left += ids
        return {"done": done, "left": left}, b""

    def _cat_log(self, request: Dict[str, Any], payload: bytes) -> Reply:
        from qcg.pilotjob.host.remote.cat_log import read_log

        return read_log(self._layout, request)

    def _tidy(self, request: Dict[str, Any], payload: bytes) -> Reply:
        from qcg.pilotjob.host.remote.tidy import remove_run, tidy

        if "purge" in request:
            return remove_run(self._layout, str(request["purge"])), b""
        return tidy(self._layout, bool(request.get("remove")), bool(request.get("discard"))), b""

    def _beat(self, request: Dict[str, Any], payload: bytes) -> Reply:
        return {}, b""
