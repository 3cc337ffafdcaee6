"""Launches on remote hosts.

Paths are relative to the run directory on the host, unless the user gave an absolute path. That directory is known only
once the host is connected, so the variable `${root_wd}` becomes the token `RUN_DIRECTORY`, which the executor replaces
with `with_run_directory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join, normpath

from qcg.pilotjob.core.records import Attempt, Grant, NodePart
from qcg.pilotjob.description.limits import SubstitutionError
from qcg.pilotjob.description.model import JobDescription, Remote, ResourceRequest
from qcg.pilotjob.description.normalize import leads_out
from qcg.pilotjob.description.variables import rewrite_remote
from qcg.pilotjob.host.records import Launch, RemotePart, RemoteRequest
from qcg.pilotjob.launch.compose import Substitution, command_line, compose, directory_of
from qcg.pilotjob.launch.output import safe_name
from qcg.pilotjob.launch.setup import refused
from qcg.pilotjob.launch.site import RemoteSite, Site

RUN_DIRECTORY = "@QCG_PM_RUN_DIRECTORY@"
"""Stands for the path of the run directory on the host."""
FILES = f"{RUN_DIRECTORY}/.service/files"
"""The directory there for files that come with launches."""
WORK = "work"
"""Directory of the working directories of jobs, below the run directory."""
LOGS = "log"
"""Link to the log directory of the run, below the run directory."""
LAST_ATTEMPT = "NN"
"""Name of the link to the directory of the last attempt of a job or iteration."""
STREAMS = {"stdout": "job.out", "stderr": "job.err"}
"""Files for the standard streams of a job that names none, in the directory of its attempt."""


def remote_site(
    host: str,
    instance: str,
    *,
    slots: bool = False,
    environment: dict[str, str] | None = None,
    directives: dict[str, str] | None = None,
    hides_gpus: bool = False,
    directory: str = "",
    local_tree: str = "",
    enforce_memory: bool = False,
) -> Site:
    """The site of a remote host. `instance`: as in the site of the manager itself. For the other arguments see
    `RemoteSite` and `Site`."""
    remote = RemoteSite(host, slots, environment or {}, directives or {}, directory, local_tree)
    return Site(
        root_wd=RUN_DIRECTORY,
        instance=instance,
        files=FILES,
        hides_gpus=hides_gpus,
        remote=remote,
        enforce_memory=enforce_memory,
    )


def sites_of_paths(directories: Mapping[str, tuple[str, str]]) -> dict[str, Site]:
    """The sites of hosts, as far as they determine paths. `directories`: for each host its run directory, and the local
    tree for retrieved logs."""
    return {
        host: remote_site(host, "", directory=directory, local_tree=tree)
        for host, (directory, tree) in directories.items()
    }


def compose_remote(description: JobDescription, attempt: Attempt, site: Site) -> Launch:
    """The launch of an attempt on a remote host, whose site is `site`."""
    assert site.remote is not None
    granted = seen_grant(description.request, attempt.grant, site)
    launch = compose(description, attempt, site, granted)
    remote, refusal = description.remote or Remote(), ""
    try:
        remote = rewrite_remote(remote, Substitution(description, attempt.position, granted, site, attempt.ordinal))
    except SubstitutionError as error:
        refusal = f"It cannot be started: {error}."
    outside = [path for path in (*remote.inputs, *remote.outputs) if leads_out(path)]
    if outside:
        refusal = f"It cannot be started: {outside[0]!r} in its inputs or outputs leads out of its directory."
    if refusal:
        remote = Remote()
        launch = launch._replace(argv=refused(refusal), setup=True)
    point, name = point_and_name(description, attempt.job.name, attempt.position)
    wd = directory_there(description, launch.wd, attempt.job.name, attempt.position)
    return launch._replace(
        wd=wd,
        env={**site.remote.environment, **launch.env},
        stdin=_below(wd, launch.stdin),
        stdout=_below(wd, launch.stdout),
        stderr=_below(wd, launch.stderr),
        grant=[(part.node, part.cores, part.gpus) for part in attempt.grant.parts],
        output="",
        remote=RemotePart(
            attempt_directory(description, attempt.job.name, attempt.position, attempt.number),
            point,
            name,
            attempt.number,
            list(remote.inputs),
            list(remote.outputs),
            {**site.remote.directives, **remote.directives},
            _request(description),
        ),
    )


def with_run_directory(launch: Launch, path: str) -> Launch:
    """The launch with the path of the run directory in place of the token."""

    def replaced(text: str) -> str:
        return text.replace(RUN_DIRECTORY, path)

    def in_path(text: str | None) -> str | None:
        return None if text is None else replaced(text)

    return launch._replace(
        argv=[replaced(word) for word in launch.argv],
        env={name: replaced(value) for name, value in launch.env.items()},
        wd=replaced(launch.wd),
        stdin=in_path(launch.stdin),
        stdout=in_path(launch.stdout),
        stderr=in_path(launch.stderr),
        files={name: replaced(text) for name, text in launch.files.items()},
    )


def seen_grant(request: ResourceRequest, grant: Grant, site: Site) -> Grant:
    """The grant as the job sees it. The slot of a batch system stands for the request of the job."""
    assert site.remote is not None
    if not site.remote.slots:
        return grant
    cores = tuple(range(request.cores.least if request.cores else 1))
    gpus = tuple(str(gpu) for gpu in range(request.gpus))
    nodes = request.nodes.least if request.nodes else 1
    return Grant((NodePart(site.remote.host, cores, gpus, request.memory),) * nodes)


def point_and_name(description: JobDescription, job: str, position: int) -> tuple[str, str]:
    """The index of an iteration, or 1, and the job name as a file name: the directories of an attempt are named so."""
    iteration = description.iteration
    point = "1" if position < 0 or iteration is None else str(iteration.index(position))
    return point, safe_name(job)


def attempt_directory(description: JobDescription, job: str, position: int, number: int) -> str:
    """The directory of an attempt, below the log directory."""
    point, name = point_and_name(description, job, position)
    return f"job/{point}/{name}/{number:02d}"


def directory_there(description: JobDescription, wd: str, job: str, position: int) -> str:
    """The working directory there. `wd`: that of the composed launch, which is below the token unless absolute."""
    if not description.execution.wd:
        return "/".join([WORK, *point_and_name(description, job, position)])
    if wd == RUN_DIRECTORY:
        return "."
    if wd.startswith("/"):
        return wd
    inside = wd.removeprefix(f"{RUN_DIRECTORY}/")
    # A path that leads out of the run directory has lost the token and one of its "..".
    return inside if inside != wd else f"../{wd}"


def shown_directory(
    description: JobDescription, job: str, position: int, grant: Grant, site: Site, ordinal: int = 1
) -> str:
    """The working directory of an attempt on its host, for users; `ordinal`: 1 for the first attempt."""
    assert site.remote is not None
    wd = directory_of(description, position, seen_grant(description.request, grant, site), site, ordinal)
    return join(site.remote.directory, directory_there(description, wd, job, position))


def shown_command(description: JobDescription, position: int, grant: Grant, site: Site) -> str:
    """The command line of an attempt on its host, for users."""
    assert site.remote is not None
    text = command_line(description, position, seen_grant(description.request, grant, site), "", site)
    return text.replace(RUN_DIRECTORY, site.remote.directory)


def retrieved_streams(description: JobDescription, job: str, position: int, site: Site) -> dict[str, str]:
    """The paths at which the output of the last attempt is on the manager's side once it was retrieved."""
    assert site.remote is not None
    if not site.remote.local_tree:
        return {}
    point, name = point_and_name(description, job, position)
    directory = join(site.remote.local_tree, LOGS, "job", point, name, LAST_ATTEMPT)
    return {stream: join(directory, file) for stream, file in STREAMS.items()}


def _below(wd: str, path: str | None) -> str | None:
    """The path of a stream, relative to the run directory."""
    if path is None or path.startswith(RUN_DIRECTORY):
        return path
    return normpath(join(wd, path))


def _request(description: JobDescription) -> RemoteRequest:
    request = description.request
    nodes = request.nodes.least if request.nodes else 0
    cores = request.cores.least if request.cores else 0
    return RemoteRequest(nodes, cores, request.gpus, request.memory, description.wall_time)
