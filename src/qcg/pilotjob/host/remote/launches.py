"""Launches as they arrive in JSON: arrays of their fields."""

from typing import Any, List, Optional

from qcg.pilotjob.host.records import Launch, RemotePart, RemoteRequest
from qcg.pilotjob.host.remote.errors import CommandError
from qcg.pilotjob.host.remote.layout import check_relative, is_id

_FEWEST_FIELDS = Launch._fields.index("grant") + 1


class UnreadableLaunch(CommandError):
    """A launch that cannot be read. `id` is empty when not even that can be read."""

    def __init__(self, id: str, sentence: str) -> None:
        super().__init__(sentence)
        self.id = id


def read_launch(fields: Any) -> Launch:
    """Raises UnreadableLaunch."""
    id = fields[0] if isinstance(fields, list) and fields and is_id(fields[0]) else ""
    try:
        return _read(fields)
    except (CommandError, TypeError, ValueError, LookupError, AttributeError) as error:
        text = "The launch%s cannot be read: %s" % (" of attempt %s" % id if id else "", error)
        raise UnreadableLaunch(id, text if text.endswith(".") else text + ".") from None


def _read(fields: Any) -> Launch:
    _check(isinstance(fields, list) and len(fields) >= _FEWEST_FIELDS, "it is no array with the fields of a launch")
    _check(is_id(fields[0]), "%r is not the id of an attempt" % (fields[0],))
    launch = Launch(*fields[: len(Launch._fields)])
    _check(_are_texts(launch.argv) and launch.argv, "argv is no list of texts")
    _check(isinstance(launch.env, dict) and _are_texts(list(launch.env.values())), "env is no object of texts")
    _check(_are_texts(launch.unset), "unset is no list of texts")
    _check(isinstance(launch.wd, str), "wd is no text")
    for path in (launch.stdin, launch.stdout, launch.stderr):
        _check(path is None or isinstance(path, str), "the path of a stream is no text")
    _check(launch.wall_time is None or isinstance(launch.wall_time, (int, float)), "wall_time is no number")
    _check(isinstance(launch.files, dict) and _are_texts(list(launch.files.values())), "files is no object of texts")
    _check(isinstance(launch.lane, str), "lane is no text")
    _check(isinstance(launch.memory, int) and launch.memory >= 0, "memory is no number")
    return launch._replace(
        cores=None if launch.cores is None else tuple(map(int, launch.cores)),
        grant=[(str(node), tuple(cores), tuple(gpus)) for node, cores, gpus in launch.grant],
        remote=_read_remote(launch.remote),
    )


def _read_remote(fields: Any) -> Optional[RemotePart]:
    if fields is None:
        return None
    _check(isinstance(fields, list), "its remote part is no array")
    remote = RemotePart(*fields[: len(RemotePart._fields)])
    check_relative(remote.directory, "directory of an attempt")
    _check(remote.directory.startswith("job/"), "its directory is not below job/")
    request: List[Any] = list(remote.request)
    return remote._replace(request=RemoteRequest(*request[: len(RemoteRequest._fields)]))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _check(good: Any, sentence: str) -> None:
    if not good:
        raise ValueError(sentence)
