"""Tries every step from this machine to a job on a remote host. On the host, only our own commands run."""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from qcg.pilotjob.cli.login_probe import Login, log_in
from qcg.pilotjob.common.printable import printable
from qcg.pilotjob.common.wording import pluralize
from qcg.pilotjob.executors.ssh.batch import batch_record
from qcg.pilotjob.executors.ssh.child import run
from qcg.pilotjob.executors.ssh.commands import (
    Control,
    check_command,
    control_path,
    destination,
    far_command,
    far_path,
    one_shot_control,
    rsync_command,
    serve_control,
    side_control,
    ssh_command,
)
from qcg.pilotjob.executors.ssh.config import HostConfig, HostsError
from qcg.pilotjob.executors.ssh.errors import (
    ConnectionProblem,
    SubCommandRefused,
    check_advice,
    failure,
    no_shared_connection,
    rsync_failed,
)
from qcg.pilotjob.executors.ssh.transport import OneShotTransport, RemoteError, ServeTransport, Transport
from qcg.pilotjob.executors.ssh.user_connection import socket_path

OK, NOTE, FAILED = "ok", "note", "failed"
PATIENCE = 60.0
"""Seconds for one command."""
ROUND_TRIPS = 5


class Step(NamedTuple):
    """The result of one step."""

    name: str
    result: str
    seconds: float | None
    text: str
    """The finding, or the error and the remedy."""


class _Failed(Exception):
    """A step failed, so that the next ones cannot be tried. The step was reported."""


async def check_host(config: HostConfig, report: Callable[[Step], None]) -> bool:
    """Check all addresses of a host; returns whether every step succeeded."""
    failed = False

    def note(step: Step) -> None:
        nonlocal failed
        failed = failed or step.result == FAILED
        # Sentences of other commands advise to call this one.
        report(step._replace(text=step.text.replace(check_advice(config.name), "")))

    run_id = f"check-{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix="qcg-pm-check-") as directory:
        checks: list[_AddressCheck] = []
        try:
            for address in config.addresses:
                checks.append(_AddressCheck(config, address, run_id, Path(directory), note, is_first=not checks))
                with suppress(_Failed):
                    await checks[-1].run()
        finally:
            await _clean_up(checks)
    return not failed


async def _clean_up(checks: list[_AddressCheck]) -> None:
    """Remove the run directory of the check from every file system that has it."""
    latest = 0
    for check in reversed(checks):
        try:
            # On a file system that a later address shares, that one has raised the epoch, and removes the directory.
            if check.epoch >= max(latest, 1):
                with suppress(_Failed):
                    await check.clean_up()
            latest = max(latest, check.epoch)
        finally:
            check.close()


class _AddressCheck:
    """The steps for one address."""

    def __init__(
        self,
        config: HostConfig,
        address: str,
        run_id: str,
        directory: Path,
        report: Callable[[Step], None],
        *,
        is_first: bool,
    ) -> None:
        self._config = config
        self._address = address
        self._there = destination(config, address)
        self._run_id = run_id
        self._run = config.run_directory(run_id)
        self._directory = directory
        self._report = report
        self._is_first = is_first
        # The path of a socket is short; %C tells the addresses apart.
        needs_person = config.second_factor != "none"
        self._path = control_path(config, os.getuid(), "own") if needs_person else str(directory / "%C")
        self._transport: Transport | None = None
        self._about: dict[str, Any] = {}
        self.epoch = 0
        """The number of this connection to the run directory; 0: there was none."""

    async def run(self) -> None:
        if self._is_first:
            self._check_batch_system()
            self._programs()
        await self._log_in()
        self._transport = await self._connect()
        self._probe_host()
        await self._round_trip(self._transport)
        await self._sessions()
        await self._transfer()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _note(self, name: str, result: str, text: str, begun: float | None = None) -> None:
        seconds = None if begun is None else time.monotonic() - begun
        self._report(Step(name, result, seconds, text))

    @contextmanager
    def _step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Report a step: as succeeded when the block calls what it gets, and as failed when the connection fails."""
        begun = time.monotonic()
        try:
            yield lambda text: self._note(name, OK, text, begun)
        except (ConnectionProblem, RemoteError) as problem:
            self._note(name, FAILED, str(problem), begun)
            raise _Failed from None

    # -- this machine -------------------------------------------------------------------------------------------------

    def _programs(self) -> None:
        for name, words in (("ssh here", self._config.ssh), ("rsync here", self._config.rsync)):
            begun = time.monotonic()
            found = shutil.which(words[0])
            if found is None:
                advice = f"install it, or name it with `{name.split()[0]}` in {self._config.source or 'hosts.toml'}"
                self._note(name, FAILED, f"there is no program {words[0]!r} on this machine; {advice}", begun)
                raise _Failed
            self._note(name, OK, found, begun)

    def _check_batch_system(self) -> None:
        try:
            batch_record(self._config)
        except HostsError as problem:
            self._note("batch system", FAILED, str(problem))
            raise _Failed from None

    # -- the login ----------------------------------------------------------------------------------------------------

    async def _log_in(self) -> None:
        if self._config.second_factor != "none":
            with self._step("open connection") as succeeded:
                found = await run(check_command(self._config, self._address, Control("no", self._path)), PATIENCE)
                if found.exit_code != 0:
                    raise no_shared_connection(self._config, self._address)
                self._path = await socket_path(self._config, self._address, self._path)
                succeeded(f"a person has opened one to {self._there}")
            control = side_control(self._config, self._path)
        else:
            control = Control("no", "none")
        begun = time.monotonic()
        # Without input, the far command ends at once and has no effect.
        far = far_command(self._config, "jobs-poll", self._run)
        verbose = msgspec.structs.replace(self._config, ssh=(*self._config.ssh, "-v"))
        argv = ssh_command(verbose, self._address, control, far, stdin=False)
        try:
            login = await log_in(argv, PATIENCE)
        except OSError as error:
            self._note("connection", FAILED, f"{argv[0]!r} cannot be started: {error.strerror}", begun)
            raise _Failed from None
        self._judge(login)

    def _judge(self, login: Login) -> None:
        problem = failure(self._config, self._address, login.exit_code, login.errors, login.output)
        for name, at, text in (
            ("connection", login.connected, f"{self._there} answers"),
            ("host key", login.known, "it is the known one"),
            ("authentication", login.authenticated, login.method),
        ):
            if at is None and not login.is_shared:
                self._report(Step(name, FAILED, login.seconds, str(problem)))
                raise _Failed
            if at is not None:
                self._report(Step(name, OK, at, text))
        if login.exit_code is None:
            self._report(Step("login", FAILED, login.seconds, f"the login takes longer than {PATIENCE:g} s"))
            raise _Failed
        noise = len(login.output.encode())
        if noise:
            shown = printable(login.output)[:60]
            text = f"the login scripts print {pluralize(noise, 'byte')}, which makes rsync fail: {shown}"
            self._report(Step("login noise", NOTE, None, text))
        else:
            self._report(Step("login noise", OK, None, "none"))
        # An installed command reports that it got no request; a bootstrapped Python has nothing to do.
        if login.exit_code in (126, 127, 255) or (login.exit_code != 0 and not self._config.command):
            self._report(Step("far command", FAILED, login.seconds, str(problem)))
            raise _Failed

    # -- the far side -------------------------------------------------------------------------------------------------

    async def _connect(self) -> Transport:
        how = "installed" if self._config.command else "sent"
        if self._config.channel == "serve":
            control = serve_control(self._config, self._path)
            channel = ServeTransport(self._config, self._address, self._run, control, _Ignore())
            begun = time.monotonic()
            try:
                await channel.open()
                await self._begin(channel)
            except SubCommandRefused as refused:
                channel.close()
                text = f"remote-serve is not admitted, so one-shot commands and polling are used: {refused}"
                self._note("channel", NOTE, text, begun)
            except (ConnectionProblem, RemoteError) as problem:
                channel.close()
                self._note("far side", FAILED, str(problem), begun)
                raise _Failed from None
            else:
                self._note("far side", OK, f"{how}; the channel is open", begun)
                return channel
        commands = OneShotTransport(self._config, self._address, self._run, one_shot_control(self._config, self._path))
        with self._step("far side") as succeeded:
            await self._begin(commands)
            succeeded(f"{how}; one command for each request")
        return commands

    async def _begin(self, transport: Transport) -> None:
        request: dict[str, Any] = {
            "do": "remote-init",
            "instance": self._run_id,
            "uuid": "",
            "log": "log.check",
            "notify": None,
            "batch": batch_record(self._config),
        }
        self._about = (await transport.call(request)).head
        self.epoch = self._about["epoch"]

    def _probe_host(self) -> None:
        about = self._about
        self._note("Python there", OK, f"{about['python']}, as {about['hostname']}")
        if not self._is_first and self.epoch == 1:
            first = destination(self._config, self._config.addresses[0])
            text = f"{self._there} does not see the files of {first}: the addresses of a host must share a file system"
            self._note("run directory", FAILED, f"{text}; make it a host of its own")
            raise _Failed
        self._note("run directory", OK, f"{os.path.dirname(about['run_dir'])} can be written")
        memory = f"{about['memory'] / 1024:.1f} GiB of memory"
        self._note("resources", OK, f"{pluralize(about['cpus'], 'CPU')} and {memory}; {self._limits(about['cpus'])}")
        for sentence in about.get("notices", ()):
            self._note("advice", NOTE, sentence)
        if self._config.is_batch and (missing := about.get("missing", ())):
            text = f"{self._there} does not find {', '.join(missing)}; with `login_shell = true` its login scripts run"
            self._note("batch system", FAILED, text)
        elif self._config.is_batch:
            self._note("batch system", OK, f"the commands of {self._config.batch} are found")

    def _limits(self, cpus: int) -> str:
        if self._config.is_batch:
            return f"at most {pluralize(self._config.jobs, 'job')} in {self._config.batch}"
        more = " (more than the host has)" if self._config.cores > cpus else ""
        return f"hosts.toml allows {pluralize(self._config.cores, 'core')}{more}"

    async def _round_trip(self, transport: Transport) -> None:
        with self._step("round trip") as succeeded:
            times = []
            for _ in range(ROUND_TRIPS if isinstance(transport, ServeTransport) else 1):
                begun = time.monotonic()
                await transport.call({"do": "jobs-poll", "epoch": self.epoch, "acks": {}, "full": False})
                times.append(time.monotonic() - begun)
            succeeded(f"{statistics.median(times) * 1000:.1f} ms for a request and its answer")

    async def _sessions(self) -> None:
        """Whether commands beside the channel can share its connection."""
        far = far_command(self._config, "jobs-poll", self._run)
        control = side_control(self._config, self._path)
        begun = time.monotonic()
        found = await run(ssh_command(self._config, self._address, control, far, stdin=False), PATIENCE)
        if "refused" in found.stderr or "session request failed" in found.stderr:
            files = (
                "file transfers log in by themselves"
                if self._config.second_factor == "none"
                else 'files can be copied with channel = "one-shot" only'
            )
            self._note("sessions", NOTE, f"the host admits one session on a connection (MaxSessions 1); {files}", begun)
        else:
            self._note("sessions", OK, "several on one connection", begun)

    async def _transfer(self) -> None:
        begun = time.monotonic()
        source, back = self._directory / "sent", self._directory / "received"
        source.write_text(self._run_id)
        there = far_path(self._config, self._address, f"{self._run}/share/sent")
        control = side_control(self._config, self._path)
        for sources, target in (([str(source)], there), ([there], str(back))):
            argv = rsync_command(self._config, control, ["-a", "--timeout=60"], sources, target)
            done = await run(argv, PATIENCE)
            if done.exit_code != 0:
                what = f"no file can be copied to {self._there} and back"
                if "is your shell clean" in done.stderr:
                    what += "; its login scripts must write nothing when no terminal is there"
                self._note(
                    "rsync there", FAILED, rsync_failed(self._config, what, done.exit_code or 0, done.stderr), begun
                )
                return
        if back.read_text() != self._run_id:
            self._note("rsync there", FAILED, "a file came back with another content", begun)
        else:
            self._note("rsync there", OK, "a file was copied there and back", begun)

    async def clean_up(self) -> None:
        assert self._transport is not None
        with self._step("clean up") as succeeded:
            reply = (await self._transport.call({"do": "remote-tidy", "epoch": self.epoch, "discard": True})).head
            if not reply.get("discarded"):
                raise ConnectionProblem(f"{self._about['run_dir']} is left on the host; remove it")
            succeeded("the files of this check were removed")


class _Ignore:
    """Ignores events and the end of a connection that is used for a few requests."""

    def event(self, event: dict[str, Any]) -> None:
        pass

    def ended(self, problem: ConnectionProblem) -> None:
        pass
