"""The command of the far side: `FAR SUBCOMMAND RUN`, with one request on stdin and one reply on stdout."""

import gc
import importlib
import os
import sys
from typing import List

_SUBCOMMANDS = {
    "remote-init": "one_shot:main",
    "jobs-submit": "one_shot:main",
    "jobs-poll": "one_shot:main",
    "jobs-kill": "one_shot:main",
    "remote-tidy": "one_shot:main",
    "cat-log": "cat_log:main",
    "remote-serve": "serve:main",
    "message": "send_message:main",
    "supervise": "supervisor:main",
    "notify": "notifier:main",
    "run-job": "run_job:main",
}
"""Where each sub-command is; imported when it is called, with the run and further arguments."""


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["gate"]:
        from qcg.pilotjob.host.remote import gate

        return gate.main(arguments[1:])
    if len(arguments) < 2 or arguments[0] not in _SUBCOMMANDS:
        sys.stderr.write("usage: qcg-pm-remote SUBCOMMAND RUN; sub-commands: %s\n" % ", ".join(sorted(_SUBCOMMANDS)))
        return 2
    return _run(arguments[0], arguments[1:])


def _run(name: str, arguments: List[str]) -> int:
    module, _, function = _SUBCOMMANDS[name].partition(":")
    gc.disable()  # loading modules leaves no garbage to collect
    loaded = importlib.import_module("qcg.pilotjob.host.remote." + module)
    gc.enable()
    code: int = getattr(loaded, function)(*arguments)
    return code


def _exit(code: int) -> None:
    """End without the teardown of the interpreter, which takes a sixth of the time of a short command."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # nobody reads the reply; the interpreter says so
    os._exit(code)


if __name__ == "__main__":
    result = main()
    _exit(result)
    sys.exit(result)
