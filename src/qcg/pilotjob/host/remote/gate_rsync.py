"""The `rsync --server` commands that the gate admits: known options, and paths inside the run directories."""

import re
from typing import Callable, List

LETTERS = frozenset("vqlogDtprncWSzuEdROJxIm")
"""Short options that neither follow links nor change files outside the destination."""
_CLUSTER = re.compile(r"-([A-Za-z]*?)(e(?:\.|[0-9]+\.[0-9]+)[A-Za-z]*)?")
"""Short options, and the abilities of the client, which rsync sends in place of a shell: `-logDtpre.iLsfxCIvu`."""
# Not --files-from=-: the names in the list come over the connection, where the gate cannot see them, and lead through
# links.
_FLAGS = frozenset(
    (
        "--delete",
        "--delete-before",
        "--delete-during",
        "--delete-delay",
        "--delete-after",
        "--delete-excluded",
        "--delete-missing-args",
        "--existing",
        "--fsync",
        "--ignore-errors",
        "--ignore-existing",
        "--ignore-missing-args",
        "--log-format=%i",
        "--log-format=X",
        "--mkpath",
        "--new-compress",
        "--numeric-ids",
        "--old-compress",
        "--partial",
        "--safe-links",
        "--size-only",
    )
)
_FLAGS_OF_RECEIVER = frozenset(("--copy-unsafe-links",))
"""Options that follow links of the sender, so that they are harmless while this host receives."""
_WITH_NUMBER = re.compile(
    r"--(?:timeout|bwlimit|max-size|min-size|max-delete|modify-window|checksum-seed|compress-level)"
    r"=-?[0-9]{1,18}[KMGkmgBb]?|-B[0-9]{1,9}|-@-?[0-9]{1,9}"
)
_WITH_NAMES = re.compile(r"--(?:checksum-choice|compress-choice|info)=[A-Za-z0-9,]{1,99}")


class RefusedRsync(ValueError):
    """An rsync command that is not admitted; the message is a clause that says why."""


class RsyncCommand:
    """One admitted command. `sends`: files leave this host. `arguments`: for the program, without its name."""

    def __init__(self, sends: bool, arguments: List[str], paths: List[str]) -> None:
        self.sends = sends
        self.arguments = arguments
        self.paths = paths


def read_rsync(words: List[str], check_path: Callable[[str], None]) -> RsyncCommand:
    """Check the words after `rsync`. `check_path` raises an exception of its own for a path that is not admitted."""
    if words[:1] != ["--server"]:
        raise RefusedRsync("rsync is admitted only as a server for the rsync of another host")
    if "." not in words:
        # Options that are not on the command line would follow over the connection, where the gate cannot see them.
        raise RefusedRsync("its options and paths are not on the command line; use rsync without --secluded-args (-s)")
    place = words.index(".")
    options, paths = words[1:place], words[place + 1 :]
    sends = options[:1] == ["--sender"]
    for option in options[1:] if sends else options:
        if sends or option not in _FLAGS_OF_RECEIVER:
            _check_option(option)
    if not paths or (len(paths) > 1 and not sends):
        raise RefusedRsync("it names no path, or several to write to")
    for path in paths:
        if path.startswith("-"):
            raise RefusedRsync("an option follows its paths")
        check_path(path)
    if not sends and "--safe-links" not in options:
        # A link that leads out of the destination would be a way to write elsewhere with the next command.
        options = [*options, "--safe-links"]
    return RsyncCommand(sends, ["--server", *options, ".", *paths], paths)


def _check_option(option: str) -> None:
    if option in _FLAGS or _WITH_NUMBER.fullmatch(option) or _WITH_NAMES.fullmatch(option):
        return
    cluster = _CLUSTER.fullmatch(option)
    if cluster is None or option == "-" or not LETTERS.issuperset(cluster.group(1)):
        raise RefusedRsync("its option %s is not admitted" % option)
