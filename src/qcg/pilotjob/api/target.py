"""Look up a manager: its address and keys, by the same rules for programs and commands."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from qcg.pilotjob.api.errors import ConnectionError, NoManager
from qcg.pilotjob.api.log import log
from qcg.pilotjob.common.environment import JOB_ADDRESS, JOB_CONTACT, MANAGER_ADDRESS, RUN_DIRECTORY
from qcg.pilotjob.runs.rundir import PREFIX
from qcg.pilotjob.wire import contact
from qcg.pilotjob.wire.contact import ClientsContact, Contact, ContactError

DEFAULT_PORT = 5555
_PROGRAMS_HINT = (
    f"Give its address, set {RUN_DIRECTORY}, or take Manager.of_run(DIRECTORY). To start one, take LocalManager, run"
    " this program with qcg-pm-client, or start qcg-pm-service --net"
)


class Target(Struct, frozen=True):
    """A manager to connect to."""

    contact: ClientsContact
    run_dir: Path | None
    """Run directory, whose contact file is read again when the manager is gone."""
    skipped: tuple[str, ...] = ()
    """Sentences about runs of other users in the same directory, which are ignored."""

    def refreshed(self) -> Target:
        """The current manager of the same run."""
        if self.run_dir is not None:
            found = _read(self.run_dir)
            if found is not None and found.clients is not None:
                return Target(found.clients, self.run_dir)
        return self


def find_target(
    address: str | None, environ: Mapping[str, str], directory: str | None = None, hint: str = _PROGRAMS_HINT
) -> Target:
    """Look up a manager: by the arguments, by environment variables of the user, the manager that started this process
    as a job, or the newest run with a live manager in the working directory, in this order."""
    if address:
        return _target_at(complete_address(address), environ)
    if directory:
        return live_run(Path(directory), hint)
    if environ.get(MANAGER_ADDRESS):
        return _target_at(complete_address(environ[MANAGER_ADDRESS]), environ)
    if environ.get(RUN_DIRECTORY):
        return live_run(Path(environ[RUN_DIRECTORY]), hint)
    if environ.get(JOB_CONTACT):
        return _manager_of_job(Path(environ[JOB_CONTACT]).parent, hint)
    if environ.get(JOB_ADDRESS):
        return _target_at(complete_address(environ[JOB_ADDRESS]), environ)
    return live_run(Path(), hint)


def target_of_run(run_dir: Path) -> Target:
    """The manager of a run directory."""
    found = _read(run_dir)
    if found is None or found.clients is None:
        raise ConnectionError(f"no manager with a network interface is at work in {run_dir}")
    return Target(found.clients, run_dir)


def complete_address(address: str) -> str:
    """Complete an address: `host`, `host:port` or `proto://host:port`. Contact files have numeric addresses."""
    protocol, separator, rest = address.rpartition("://")
    bracketed, bracket, behind = rest.rpartition("]")
    host, colon, port = behind.partition(":")
    host = bracketed + bracket + host
    host = "127.0.0.1" if host == "localhost" else host
    return f"{protocol if separator else 'tcp'}://{host}:{port if colon else DEFAULT_PORT}"


def live_run(directory: Path, hint: str = _PROGRAMS_HINT) -> Target:
    """Find the live manager of a run directory, or of the newest run with one in a working directory.

    Runs whose contact file cannot be read are skipped when another run has a live manager."""
    from qcg.pilotjob.runs.manager_process import is_manager_alive, registry_holder

    directory = directory.absolute()
    runs, skipped = _runs_in(directory)
    if not runs:
        from qcg.pilotjob.runs.submissions import waiting_suffix

        whose = "of yours " if skipped else ""
        raise NoManager(
            f"No manager was found: there is no run ({PREFIX}*) {whose}in {directory}{waiting_suffix(directory)}."
            f" {hint}",
            skipped=skipped,
        )
    problems = []
    for run in runs:
        try:
            found = _read(run)
        except ConnectionError as error:
            problems.append(error)
            continue
        if found is None:
            holder = registry_holder(run)
            if holder is not None:
                from qcg.pilotjob.runs.messages import no_contact_message

                problems.append(ConnectionError(no_contact_message(run, holder)))
        elif is_manager_alive(run, found):
            if found.clients is not None:
                return Target(found.clients, run, skipped)
            problems.append(
                ConnectionError(
                    f"the manager in {run} has no network interface, so nobody can talk to it: start it without"
                    " --no-net, or qcg-pm-service with --net"
                )
            )
    if problems:
        raise problems[0]
    # Imported late: these read registries, which programs do not need that find a live manager.
    from qcg.pilotjob.runs.discovery import newest_with_jobs
    from qcg.pilotjob.runs.messages import describe_run_without_manager

    newest = newest_with_jobs(runs)
    raise NoManager(
        f"{describe_run_without_manager(newest)} See what happened with `qcg-pm report {newest}`, start another manager"
        " with `qcg-pm-service --net`, or name its directory with --path",
        newest,
        skipped,
    )


def _manager_of_job(run_dir: Path, hint: str) -> Target:
    """The manager of this job, without a check of its liveness: on another host its files may look outdated."""
    found = _read(run_dir)
    if found is None or found.clients is None:
        return live_run(run_dir, hint)
    return Target(found.clients, run_dir.absolute())


def _target_at(address: str, environ: Mapping[str, str]) -> Target:
    """Look up the keys for an address in contact files: of runs that environment variables name, and of the working
    directory. Without keys the connection is not encrypted."""
    places = [Path(environ[JOB_CONTACT]).parent] if environ.get(JOB_CONTACT) else []
    places += [Path(environ[RUN_DIRECTORY])] if environ.get(RUN_DIRECTORY) else []
    runs: list[Path] = []
    for place in [*places, Path()]:
        with suppress(NoManager):
            runs += _runs_in(place.absolute())[0]
    for run in runs:
        try:
            found = _read(run)
        except ConnectionError:  # most likely the run of another user
            continue
        if found is not None and found.clients is not None and found.clients.address == address:
            return Target(found.clients, run)
    return Target(ClientsContact(address=address), None)


def _runs_in(directory: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The run directory itself, or the runs in a working directory, newest first; and sentences about runs of other
    users."""
    from qcg.pilotjob.runs.own_runs import RunsError, find_runs

    try:
        found = find_runs(directory)
    except RunsError as error:
        raise NoManager(f"No manager was found: {error}") from None
    for sentence in found.notices():
        log.info("%s", sentence)
    return found.own, tuple(found.notices())


def _read(run_dir: Path) -> Contact | None:
    try:
        return contact.read(run_dir)
    except ContactError as error:
        raise ConnectionError(str(error)) from None
