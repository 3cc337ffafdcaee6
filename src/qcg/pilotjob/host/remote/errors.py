"""Errors of sub-commands, as sentences for users and codes for the manager."""

FAILED = "failed"
REFUSED = "refused"
STALE_EPOCH = "stale-epoch"
OTHER_RUN = "other-run"
OTHER_HOST = "other-host"
"""The run uses the directory already, as that of another host."""
ABSENT = "absent"
"""The run directory is not there."""


class CommandError(Exception):
    """A request that cannot be carried out. The text is a sentence: what, where, what to do."""

    def __init__(self, sentence: str, code: str = FAILED) -> None:
        super().__init__(sentence)
        self.code = code


class CannotWrite(CommandError):
    """A file or directory that cannot be written, as on a full disk."""


def os_error(what: str, error: OSError) -> CommandError:
    """`what` names the action, for example `The run directory cannot be made`."""
    place = "" if error.filename is None else " (%s)" % error.filename
    return CommandError("%s: %s%s." % (what, error.strerror or error, place))
