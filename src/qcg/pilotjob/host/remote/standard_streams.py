"""The request of a command on its standard input, and the reply on its standard output."""

import sys
from typing import Any, Dict, Optional, Tuple

from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.files import write_all
from qcg.pilotjob.host.remote.frames import Frame, marker_of, read_frame, reply_frame


def receive() -> Optional[Tuple[Frame, str]]:
    """The request and the marker of its reply; None, with a sentence on stderr, when there is none."""
    try:
        frame = read_frame(0)
        if frame is None:
            raise CommandError("There is no request on the standard input.")
        marker = marker_of(frame.head)
        if frame.head.get("do") != sys.argv[1]:
            # A gate has admitted the command, not the request.
            raise CommandError("The request is %r, and the command %s." % (frame.head.get("do"), sys.argv[1]))
        return frame, marker
    except CommandError as error:
        sys.stderr.write("%s\n" % error)
        return None


def send(marker: str, reply: Dict[str, Any], payload: bytes = b"") -> int:
    try:
        write_all(1, reply_frame(marker, reply, payload))
    except BrokenPipeError:
        return 1
    return 0 if reply.get("ok") else 1


def refusal(request: Dict[str, Any], error: CommandError) -> Dict[str, Any]:
    return {"n": request.get("n"), "ok": False, "error": str(error), "code": error.code}
