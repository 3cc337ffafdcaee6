"""Commands that answer one request: one frame on stdin, one frame on stdout."""

from qcg.pilotjob.host.remote.commands import Commands
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import Layout
from qcg.pilotjob.host.remote.standard_streams import receive, refusal, send


def main(run: str) -> int:
    received = receive()
    if received is None:
        return 2
    frame, marker = received
    try:
        reply, payload = Commands(Layout(run)).answer(frame)
    except CommandError as error:
        reply, payload = refusal(frame.head, error), b""
    return send(marker, reply, payload)
