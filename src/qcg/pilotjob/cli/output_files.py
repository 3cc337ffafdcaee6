"""Output files of jobs: their paths, their last lines, and following them while they grow."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qcg.pilotjob.cli.console import echo
from qcg.pilotjob.cli.errors import Denial
from qcg.pilotjob.common.terminal_output import ProgramOutput
from qcg.pilotjob.core.job_states import State
from qcg.pilotjob.host.records import OUTPUT, output_path
from qcg.pilotjob.runs.rundir import PREFIX

if TYPE_CHECKING:
    from qcg.pilotjob.api.queries import Queries

Answer = dict[str, dict[str, dict[str, Any]]]
"""A reply with an entry for each job under `jobs`."""

PAUSE = 0.1
"""Seconds between two reads of a file."""
CHUNK = 1 << 16


class NoOutput(Denial):
    """The job has no output file."""


class NoOutputYet(NoOutput):
    """The job has no output file yet."""


def path_of(name: str, entry: dict[str, Any], stream: str) -> str:
    """The path of a job's output, from its entry of `jobInfo`. Raises Denial, which says why there is none."""
    if entry["status"] != 0:
        raise Denial(entry["message"])
    info = entry["data"]
    if "iterations" in info:
        first = info["iterations"]["start"]
        raise Denial(
            f"job {name!r} has iterations; name one of them, such as {name}:{first}, or all with '{name}:*'."
            " --export DIR writes output that was collected in streams to files"
        )
    runtime = info.get("runtime")
    if runtime is None:
        sentence = f"job {name!r} is {info['status']} and has written nothing; see: qcg-pm why {name}"
        raise NoOutput(sentence) if State[info["status"]].is_final else NoOutputYet(sentence)
    if stream not in runtime and "rowProblem" in info:
        raise Denial(f"the name of the {stream} of job {name!r} is not known any more: {info['rowProblem']}")
    if stream not in runtime:
        raise _no_file(name, State[info["status"]], stream)
    path: str = runtime[stream]
    return path


def _no_file(name: str, state: State, stream: str) -> NoOutput:
    why = f"its description names no file for its {stream}"
    if not state.is_final:
        return NoOutputYet(f"job {name!r} is {state.name}, and {why}: its output is kept if it fails, and shown then")
    if state is State.SUCCEED:
        return NoOutput(
            f"job {name!r} has succeeded, and its output was not kept: {why}; give it one, or run it with --keep-output"
        )
    return NoOutput(f"job {name!r} was never started, so it has written nothing; see: qcg-pm why {name}")


def saved_path(run_dir: Path, name: str, stream: str) -> str:
    """The path for saved output of a run; `name`: the name of the attempt, as `output_name` makes it."""
    return output_path(os.fspath(run_dir.absolute() / OUTPUT), name, stream)


def is_saved_path(path: str) -> bool:
    """Whether this is a path for saved output of a run."""
    folder = Path(path).parent
    return folder.name == OUTPUT and folder.parent.name.startswith(PREFIX)


def _has_nothing_saved(path: str) -> bool:
    return is_saved_path(path) and not os.path.lexists(path)


def show_end(path: str, lines: int | None, *, raw: bool = False, heading: str = "") -> bool:
    """Show the last lines of a file, or all of it. Returns False for an empty file. `raw`: no character is escaped.
    `heading`: a line before the output."""
    if _has_nothing_saved(path):
        return False
    with _open(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        if heading:
            echo(heading)
        with ProgramOutput(raw=raw) as output:
            _seek_lines(file, lines)
            _copy(file, output)
        return True


class Follower:
    """Shows the output of a job until the job has ended, by polling its file and its state."""

    def __init__(self, manager: Queries, name: str, run_dir: Path | None) -> None:
        self._manager = manager
        self._name = name
        self._run_dir = run_dir

    def follow(self, stream: str, lines: int | None, *, raw: bool = False) -> bool:
        """Follow one stream. Returns False when its file is empty at the end."""
        path = self._path(stream)
        if _has_nothing_saved(path):
            return False
        with _open(path) as file, ProgramOutput(raw=raw) as output:
            _seek_lines(file, lines)
            while True:
                # Before the file is read, so that the last lines are shown, too.
                over = self.is_over()
                _copy(file, output)
                if over:
                    return os.fstat(file.fileno()).st_size > 0
                time.sleep(PAUSE)

    def _path(self, stream: str) -> str:
        """Wait until the output file exists, or the job has ended, and return its path."""
        while True:
            over = self.is_over()
            try:
                path = path_of(self._name, self.info(), stream)
                if over or Path(path).exists():
                    return path
            except NoOutputYet:
                pass
            time.sleep(PAUSE)

    def is_over(self) -> bool:
        """Whether the job has ended."""
        entry = self._entry(lambda manager: manager.status(self._name))
        # A job that does not exist any more was removed after its end.
        return entry["status"] != 0 or State[entry["data"]["status"]].is_final

    def info(self) -> dict[str, Any]:
        """The entry of the job in the `jobInfo` reply."""
        return self._entry(lambda manager: manager.info(self._name))

    def _entry(self, ask: Callable[[Queries], Answer]) -> dict[str, Any]:
        """The job's entry in a reply of the manager, or from the registry when the manager has ended."""
        from qcg.pilotjob.api.errors import ConnectionError, RequestRefusedError

        try:
            return ask(self._manager)["jobs"][self._name]
        except RequestRefusedError:
            raise
        except ConnectionError:
            from qcg.pilotjob.cli.offline_client import RegistryClient, final_states

            if self._run_dir is None or final_states(self._run_dir, [self._name]) is None:
                raise
            with RegistryClient(self._run_dir) as ended:
                return ask(ended)["jobs"][self._name]


def _open(path: str) -> BinaryIO:
    """Open a regular file. The path may be a pipe: opening it must not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Denial(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Denial(f"{path} is no file, so its content cannot be shown")
    return os.fdopen(descriptor, "rb")


def _seek_lines(file: BinaryIO, lines: int | None) -> None:
    """Seek to the start of the last lines, reading backwards from the end."""
    if lines is None:
        return
    place = file.seek(0, os.SEEK_END)
    if not lines or not place:
        return
    file.seek(place - 1)
    # A line break at the very end ends the last line, and starts no new one.
    missing = lines + (file.read(1) == b"\n")
    while place > 0:
        start = max(place - CHUNK, 0)
        file.seek(start)
        chunk = file.read(place - start)
        breaks = chunk.count(b"\n")
        if breaks >= missing:
            at = len(chunk)
            for _ in range(missing):
                at = chunk.rindex(b"\n", 0, at)
            file.seek(start + at + 1)
            return
        missing -= breaks
        place = start
    file.seek(0)


def _copy(file: BinaryIO, output: ProgramOutput) -> None:
    """Show the rest of the file as it is now."""
    while chunk := file.read(CHUNK):
        output.write(chunk)
    output.flush()
