"""Copies files of remote jobs with rsync.

One rsync serves many jobs. When it fails for a reason that may be one job's own, each job gets an rsync to itself, so
that one missing file fails one job.
"""

from __future__ import annotations

import glob
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qcg.pilotjob.common.wording import list_names, pluralize
from qcg.pilotjob.executors.ssh import child
from qcg.pilotjob.executors.ssh.commands import far_path, rsync_command
from qcg.pilotjob.executors.ssh.errors import SSH_FAILED, ConnectionProblem, failure, not_startable, rsync_failed
from qcg.pilotjob.executors.ssh.file_lists import (
    earlier_log_rules,
    include_rules,
    is_below,
    log_rules,
    missing_patterns,
    without_parts,
)
from qcg.pilotjob.executors.ssh.job_files import ConnectedHost, JobFiles, LostLogs, with_problem
from qcg.pilotjob.host.records import Ended, EndReason, Launch

log = logging.getLogger(__name__)

COPY_PATIENCE = 3600.0
"""Seconds for one rsync; rsync itself gives up after `--timeout` seconds without progress."""
_RSYNC = ("-a", "--timeout=600")
_CONNECTION_LOST = (SSH_FAILED, 10, 12, 30, 35)
"""Exit codes of rsync when its connection was not made, or broke: the same files are copied over the next one."""
_KILLED = (15, 16, 19, 20, 21)
"""Exit codes of rsync when a signal has ended one of its processes: the same files are copied again."""
_LISTED = ("-ii", "--out-format=%i|%n")
"""Let rsync list unchanged files as well as copied ones: it lists unchanged files only in a format with `%i`."""


class FilesOfAttempt(NamedTuple):
    """Files to copy after the end of an attempt."""

    wd: str
    """Its working directory, relative to the run directory, or absolute."""
    outputs: Sequence[str]
    directory: str
    """Its log directory below `job/`: POINT/NAME/NN."""
    is_earlier: bool = False
    """An earlier manager has started it: its logs are below the log directory of that start."""


class RsyncJobFiles(JobFiles):
    """Copies between the working directory of the manager and the run directory of a host."""

    def __init__(
        self,
        wd: Path,
        tree: Path,
        retrieve: str,
        recall: Callable[[Ended], Launch | None] = lambda ended: None,
    ) -> None:
        """`wd`: the working directory of the manager. `tree`: the local tree for retrieved logs. `retrieve`: whose logs
        are retrieved, as in `HostConfig`. `recall`: the launch of an attempt of an earlier
        manager, by its end."""
        self._wd = wd
        self._tree = tree
        self._retrieve = retrieve
        self._recall = recall
        self._launched: dict[str, FilesOfAttempt] = {}
        self._lost_logs: list[LostLogs] = []

    # -- before a start -----------------------------------------------------------------------------------------------

    def needs_inputs(self, launch: Launch) -> bool:
        return launch.remote is not None and bool(launch.remote.inputs)

    async def stage_in(self, host: ConnectedHost, launches: Sequence[Launch]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        found: dict[str, list[tuple[Path, str]]] = {}
        for launch in launches:
            try:
                found[launch.id] = self._inputs_of(launch, host)
            except ValueError as problem:
                refused[launch.id] = str(problem)
            except OSError as error:
                refused[launch.id] = f"Its inputs could not be read: {error}."
        if found:
            refused.update(await self._copy_in(host, found))
        return refused

    def _inputs_of(self, launch: Launch, host: ConnectedHost) -> list[tuple[Path, str]]:
        """The files on this machine, with their paths below the run directory. Raises ValueError with a sentence."""
        assert launch.remote is not None
        target = _below_run(launch.wd, host)
        if target is None:
            raise ValueError(
                f"Its inputs cannot be copied: its working directory {launch.wd} is not below the run directory"
                f" {host.run_dir} of {host.config.name}; leave out `wd`, or make it a relative path."
            )
        pairs = []
        for pattern in launch.remote.inputs:
            names = sorted(glob.glob(pattern, root_dir=self._wd, recursive=True))
            if not names:
                raise ValueError(f"Its input {pattern!r} matches no file in {self._wd}.")
            pairs += [(self._wd / name, os.path.join(target, _arrival(name))) for name in names]
        try:
            without_parts((str(source), arrival) for source, arrival in pairs)
        except ValueError as problem:
            raise ValueError(f"Its inputs cannot be copied: {problem}; rename one of them.") from None
        return pairs

    async def _copy_in(self, host: ConnectedHost, found: Mapping[str, Sequence[tuple[Path, str]]]) -> Mapping[str, str]:
        """Copy all inputs through a directory of links that looks like the run directory of the host."""
        what = f"Its inputs could not be copied to {host.config.name}"
        try:
            pairs = without_parts((str(source), target) for of_job in found.values() for source, target in of_job)
            with tempfile.TemporaryDirectory(prefix="qcg-pm-inputs-", ignore_cleanup_errors=True) as links:
                _link(Path(links), pairs)
                argv = rsync_command(
                    host.config,
                    host.control,
                    [*_RSYNC, "--copy-unsafe-links", "--no-owner", "--no-group"],
                    [f"{links}/"],
                    far_path(host.config, host.address, f"{host.run}/"),
                )
                finished = await _run(host, argv)
        except (OSError, ValueError) as error:
            sentence = f"{what}: {error}."
        else:
            if finished.exit_code == 0:
                return {}
            sentence = _sentence(host, what, finished)
        if len(found) == 1:
            return dict.fromkeys(found, sentence)
        problems: dict[str, str] = {}
        for id, of_job in found.items():
            problems.update(await self._copy_in(host, {id: of_job}))
        return problems

    # -- after an end -------------------------------------------------------------------------------------------------

    def launched(self, launch: Launch) -> None:
        self._remember(launch, is_earlier=False)

    def _remember(self, launch: Launch, *, is_earlier: bool) -> None:
        if launch.remote is not None:
            directory = launch.remote.directory.removeprefix("job/")
            self._launched[launch.id] = FilesOfAttempt(launch.wd, launch.remote.outputs, directory, is_earlier)

    def holds_end(self, ended: Ended) -> bool:
        files = self._files_of(ended)
        return files is not None and bool(files.outputs) and bool(ended.pid)

    def follows_end(self, ended: Ended) -> bool:
        if self._wants_logs(ended):
            return True
        self._launched.pop(ended.id, None)
        return False

    def _wants_logs(self, ended: Ended) -> bool:
        has_failed = ended.exit_code != 0 or ended.reason != EndReason.EXIT
        return bool(ended.pid) and (self._retrieve == "always" or (self._retrieve == "on-failure" and has_failed))

    async def after_end(self, host: ConnectedHost, ended: Sequence[Ended]) -> Sequence[Ended]:
        ends = await self._copy_out(host, ended)
        if not host.shared:
            await self._retrieve_logs(host, ends)
        for end in ended:
            self._launched.pop(end.id, None)
        return ends

    def take_lost_logs(self) -> list[LostLogs]:
        lost, self._lost_logs = self._lost_logs, []
        return lost

    def _files_of(self, ended: Ended) -> FilesOfAttempt | None:
        if ended.id not in self._launched:
            recalled = self._recall(ended)
            if recalled is None:
                return None
            self._remember(recalled, is_earlier=True)
        return self._launched.get(ended.id)

    async def _copy_out(self, host: ConnectedHost, ended: Sequence[Ended]) -> list[Ended]:
        wanted = {end.id: files for end in ended if self.holds_end(end) and (files := self._files_of(end))}
        problems = await self._fetch(host, wanted) if wanted else {}
        return [with_problem(end, problems.get(end.id, "")) for end in ended]

    async def _fetch(self, host: ConnectedHost, wanted: Mapping[str, FilesOfAttempt]) -> dict[str, str]:
        """Copy the outputs of these attempts. Returns a sentence for each attempt whose outputs are not all there."""
        problems = {}
        places = {}
        for id, files in wanted.items():
            place = _below_run(files.wd, host)
            if place is None:
                problems[id] = (
                    f"Its outputs cannot be copied: its working directory {files.wd} is not below the run directory"
                    f" {host.run_dir} of {host.config.name}."
                )
            else:
                places[id] = place
        if not places:
            return problems
        rules = include_rules((place, pattern) for id, place in places.items() for pattern in wanted[id].outputs)
        source = far_path(host.config, host.address, f"{host.run}/")
        options = [*_RSYNC, *_LISTED, "--no-owner", "--no-group", "--prune-empty-dirs", *rules]
        argv = rsync_command(host.config, host.control, options, [source], f"{self._wd}/")
        finished = await _run(host, argv)
        if finished.exit_code != 0 and len(places) > 1:
            for id in places:
                problems.update(await self._fetch(host, {id: wanted[id]}))
            return problems
        lines = finished.stdout.decode("utf-8", "surrogateescape").splitlines()
        copied = [line.partition("|")[2] for line in lines]
        for id, place in places.items():
            if finished.exit_code != 0:
                what = f"Its outputs could not be copied from {host.config.name}"
                problems[id] = _sentence(host, what, finished)
            elif missing := missing_patterns(place, wanted[id].outputs, copied):
                names = list_names([repr(pattern) for pattern in missing])
                outputs = f"output {names} is" if len(missing) == 1 else f"outputs {names} are"
                problems[id] = f"Its {outputs} missing in {place} on {host.config.name}."
        return problems

    async def _retrieve_logs(self, host: ConnectedHost, ended: Sequence[Ended]) -> None:
        """Copy log directories to the local tree. A failure is noted as `LostLogs`, and fails no job."""
        wanted = [files for end in ended if self._wants_logs(end) and (files := self._files_of(end))]
        earlier = [files.directory for files in wanted if files.is_earlier]
        own = [files.directory for files in wanted if not files.is_earlier]
        try:
            if own:
                await self._copy_logs(host, f"{host.log}/job/", log_rules(own), len(own))
                _link_logs(self._tree, host.log, own)
            if earlier:
                await self._copy_logs(host, "", earlier_log_rules(earlier), len(earlier))
                for log_directory in sorted(path.name for path in self._tree.glob("log.*")):
                    _link_logs(self._tree, log_directory, earlier)
        except OSError as error:
            what = f"logs of jobs on {host.config.name} cannot be written to {self._tree}: {error.strerror}"
            self._lose_logs(len(wanted), f"{what}.")

    async def _copy_logs(self, host: ConnectedHost, place: str, rules: list[str], count: int) -> None:
        """Copy logs from a directory below the run directory to the same one below the local tree."""
        config = host.config
        local = self._tree / place
        local.mkdir(mode=0o700, parents=True, exist_ok=True)
        limit = [f"--max-size={config.retrieve_max_size}"] if config.retrieve_max_size else []
        source = far_path(config, host.address, f"{host.run}/{place}")
        argv = rsync_command(config, host.control, [*_RSYNC, *limit, *rules], [source], f"{local}/")
        finished = await _run(host, argv)
        if finished.exit_code != 0:
            what = f"the logs of {pluralize(count, 'attempt')} could not be retrieved from {config.name}"
            self._lose_logs(count, _sentence(host, what, finished))

    def _lose_logs(self, count: int, reason: str) -> None:
        log.warning("%s", reason)
        self._lost_logs.append(LostLogs(count, reason))


def _link(directory: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Make links to files, each at its path below a directory. No path is below another one."""
    for source, target in pairs:
        place = directory / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)


def _link_logs(tree: Path, log_name: str, directories: Iterable[str]) -> None:
    """Make the links of a host in the local tree: `log` to its newest directory, `NN` to the last attempt."""
    _replace_link(tree / "log", log_name)
    for directory in directories:
        parent, number = os.path.split(directory)
        place = tree / log_name / "job" / parent
        if (place / number).is_dir():
            _replace_link(place / "NN", number)


def _replace_link(place: Path, target: str) -> None:
    if not (place.is_symlink() and os.readlink(place) == target):
        new = place.with_name(f".{place.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        new.replace(place)


def _below_run(path: str, host: ConnectedHost) -> str | None:
    """A directory as a path below the run directory; None where it is elsewhere."""
    if path.startswith("/"):
        path = os.path.relpath(path, host.run_dir)
    return os.path.normpath(path) if is_below(path) else None


def _arrival(name: str) -> str:
    """Where an input arrives below the working directory of its job: at its own path, or under its name alone."""
    return os.path.normpath(name) if is_below(name) else os.path.basename(os.path.normpath(name))


def _sentence(host: ConnectedHost, what: str, finished: child.Finished) -> str:
    if finished.exit_code is None:
        return f"{what}: rsync did not end within {COPY_PATIENCE:.0f} s."
    return rsync_failed(host.config, what, finished.exit_code, finished.stderr) + "."


async def _run(host: ConnectedHost, argv: Sequence[str]) -> child.Finished:
    """Run rsync. Raises ConnectionProblem when the host could not be reached, its connection broke, or rsync was
    killed."""
    try:
        finished = await child.run(argv, COPY_PATIENCE)
    except OSError as error:
        raise not_startable(host.config, argv[0], error) from None
    if finished.exit_code in _CONNECTION_LOST:
        problem = failure(host.config, host.address, SSH_FAILED, finished.stderr)
        if finished.exit_code == SSH_FAILED or problem.by_network:
            raise problem
        what = f"rsync lost its connection to {host.config.name}"
        raise ConnectionProblem(rsync_failed(host.config, what, finished.exit_code, finished.stderr))
    if finished.exit_code is not None and (finished.exit_code < 0 or finished.exit_code in _KILLED):
        raise ConnectionProblem(f"the rsync that copied files from or to {host.config.name} was killed")
    return finished
