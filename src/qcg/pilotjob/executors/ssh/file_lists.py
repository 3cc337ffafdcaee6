"""Files of jobs that rsync copies: include lists, and the patterns without a file afterwards. Pure.

The run directory of a host mirrors the working directory of the manager: a file has the same relative path in both. Log
directories are the exception: they are below the log directory of a start, as on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from posixpath import isabs, normpath

_SPECIAL = re.compile(r"([\\*?\[])")


def literal(path: str) -> str:
    """A path as a filter rule of rsync that matches only this path."""
    return _SPECIAL.sub(r"\\\1", path)


def is_below(path: str) -> bool:
    """Whether a relative path stays below its start."""
    return not isabs(path) and normpath(path).split("/", 1)[0] != ".."


def without_parts(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of a source and its target, in the order of targets, without those that a directory among them brings.

    Raises ValueError, with a clause, when two sources have one target.
    """
    kept: list[tuple[str, str]] = []
    whole: dict[str, str] = {}
    for target, source, given in sorted((normpath(target), normpath(source), source) for source, target in pairs):
        parts = target.split("/")
        above = next((place for end in range(1, len(parts) + 1) if (place := "/".join(parts[:end])) in whole), None)
        if above is None:
            whole[target] = source
            kept.append((given, target))
        elif source != normpath(f"{whole[above]}/{target[len(above) :]}"):
            raise ValueError(f"{source} and {whole[above]} would both arrive at {target}")
    return kept


def include_rules(wanted: Iterable[tuple[str, str]]) -> list[str]:
    """The filter rules that let through these files and nothing else.

    `wanted`: a directory, and a pattern below it. Patterns may match directories, which are copied with all they hold.
    """
    rules: dict[str, None] = {}
    for directory, pattern in wanted:
        parents = [literal(part) for part in directory.split("/") if part not in ("", ".")]
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        for place in range(1, len(parents) + 1):
            rules["--include=/" + "/".join(parents[:place]) + "/"] = None
        for place in range(1, len(parts)):
            rules["--include=/" + "/".join([*parents, *parts[:place]]) + "/"] = None
        rules["--include=/" + "/".join([*parents, *parts])] = None
        rules["--include=/" + "/".join([*parents, *parts, "**"])] = None
    return [*rules, "--exclude=*"]


def log_rules(directories: Iterable[str]) -> list[str]:
    """The filter rules for the log directories `POINT/NAME/NN` of attempts, below `job/`."""
    rules: dict[str, None] = {}
    for directory in directories:
        parts = [literal(part) for part in directory.split("/")]
        for place in range(1, len(parts) + 1):
            rules["--include=/" + "/".join(parts[:place])] = None
        rules["--include=/" + "/".join(parts) + "/**"] = None
    return [*rules, "--exclude=/**"]


def earlier_log_rules(directories: Iterable[str]) -> list[str]:
    """The filter rules for log directories of attempts of all starts, below the run directory."""
    below = [rule.replace("--include=/", "--include=/log.*/job/", 1) for rule in log_rules(directories)[:-1]]
    return ["--include=/log.*/", "--include=/log.*/job/", *below, "--exclude=*"]


def missing_patterns(directory: str, patterns: Sequence[str], copied: Iterable[str]) -> list[str]:
    """The patterns below a directory that match none of the files and directories that rsync has listed."""
    base = normpath(directory) + "/" if normpath(directory) != "." else ""
    below = [name.rstrip("/")[len(base) :] for name in copied if name.startswith(base)]
    return [pattern for pattern in patterns if not any(_matches(name, pattern) for name in below)]


def _matches(name: str, pattern: str) -> bool:
    """Whether a path, or one of its first parts, matches a pattern part by part."""
    wanted = [part for part in pattern.split("/") if part not in ("", ".")]
    parts = name.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))
